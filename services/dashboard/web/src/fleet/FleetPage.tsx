/** Who works, what is measured on, and what all of them did lately. */
import type { ReactNode } from "react";
import { get } from "../api/client";
import { type Resource, useResource } from "../api/resource";
import type { Activity, Device, List, Worker } from "../api/types";
import { duration, plural, target } from "../format";
import { useChoices, useTitle } from "../route";
import { Choice, type Option } from "../ui/fields";
import { Empty, Shown } from "../ui/states";
import { type Column, Table } from "../ui/Table";
import { Section, When } from "../ui/parts";
import { byHealth, isAway, machineWords, peakWords } from "./health";
import { Timeline } from "./Timeline";

const REFRESH_SEC = 3;
const ACTIVITY_SEC = 5;
const STANDARD_MINUTES = 60;
const MINUTES: { readonly [name: string]: number } = { "10 minutes": 10, "6 hours": 360, day: 1440 };
const WINDOWS: readonly Option[] = [["", "hour"], ...Object.keys(MINUTES).map((name): Option => [name, name])];

export function FleetPage(): ReactNode {
  useTitle("Fleet");
  const workers = useResource<List<Worker>>("workers", (signal) => get("workers", {}, signal), REFRESH_SEC);
  const devices = useResource<List<Device>>("devices", (signal) => get("devices", {}, signal), REFRESH_SEC);
  return (
    <>
      <h1>Fleet</h1>
      <Lately workers={workers.data?.items ?? []} devices={devices.data?.items ?? []} />
      <Members id="devices" title="Devices" of={devices} words={deviceWords} columns={DEVICES} rowKey={(device) => String(device.id)}>
        <Empty title="No device yet">
          <p>
            On the machine that is to be measured on: <code>mallorn device</code>
          </p>
        </Empty>
      </Members>
      <Members id="workers" title="Workers" of={workers} words={workerWords} columns={WORKERS} rowKey={(worker) => worker.id}>
        <Empty title="No worker within a day">
          <p>
            Start one with <code>mallorn worker</code>
          </p>
        </Empty>
      </Members>
    </>
  );
}

type MembersProps<Row> = {
  id: string;
  title: string;
  of: Resource<List<Row>>;
  words: (rows: readonly Row[]) => string;
  columns: readonly Column<Row>[];
  rowKey: (row: Row) => string;
  /** What stands where there are none. */
  children: ReactNode;
};

function Members<Row extends Device | Worker>({ id, title, of, words, columns, rowKey, children }: MembersProps<Row>): ReactNode {
  return (
    <Section id={id} title={title}>
      <Shown of={of} what={id} none={children}>
        {({ items }) => (
          <>
            <p className="note">{words(items)}</p>
            <Table label={title} columns={columns} rows={byHealth(items)} rowKey={rowKey} rowHeight={54} cards />
          </>
        )}
      </Shown>
    </Section>
  );
}

function Lately({ workers, devices }: { workers: readonly Worker[]; devices: readonly Device[] }): ReactNode {
  const [choices, choose] = useChoices();
  const minutes = MINUTES[choices["window"] ?? ""] ?? STANDARD_MINUTES;
  const activity = useResource<Activity>(`activity/${minutes}`, (signal) => get("fleet/activity", { minutes }, signal), ACTIVITY_SEC);
  return (
    <section aria-labelledby="lately">
      <div className="title-row">
        <h2 id="lately">Lately</h2>
        <div className="toolbar">
          <Choice label="The last" value={choices["window"] ?? ""} options={WINDOWS} onChoose={(window) => choose({ window })} />
        </div>
      </div>
      <Shown of={activity} what="what the fleet did">
        {(known) => (
          <Timeline
            activity={known}
            workers={workers.filter((worker) => !isAway(worker)).map((worker) => worker.id)}
            devices={devices.filter((device) => !isAway(device)).map((device) => device.name)}
          />
        )}
      </Shown>
    </section>
  );
}

function deviceWords(devices: readonly Device[]): string {
  const online = devices.filter((device) => !isAway(device));
  const busy = online.filter((device) => device.busy);
  return `${plural(devices.length, "device")}, ${online.length} online, ${busy.length} measuring.`;
}

function workerWords(workers: readonly Worker[]): string {
  const alive = workers.filter((worker) => !isAway(worker));
  const busy = alive.filter((worker) => worker.busy_with !== "");
  return `${plural(alive.length, "worker")} alive, ${busy.length} at work.`;
}

function Health({ words }: { words: string }): ReactNode {
  return <span className={`mark mark-${words}`}>{words}</span>;
}

function Sandbox({ told }: { told: string }): ReactNode {
  const word = told === "" ? "–" : told === "full" || told === "off" ? told : "partly";
  return <span title={told}>{word}</span>;
}

const DEVICES: readonly Column<Device>[] = [
  {
    key: "name",
    title: "Device",
    width: 22,
    cell: (device) => (
      <>
        {device.name}
        <small>{device.info.accelerator || device.info.cpu_model || device.host_class}</small>
      </>
    ),
  },
  { key: "health", title: "State", width: 13, cell: (device) => <Health words={device.state} /> },
  { key: "target", title: "Target", width: 20, cell: (device) => <span title={device.target}>{target(device.target)}</span> },
  { key: "address", title: "Address", width: 14, cell: (device) => device.info.address || "–" },
  { key: "threads", title: "Threads", width: 8, numeric: true, cell: (device) => device.threads },
  { key: "machine", title: "Computes", width: 14, numeric: true, cell: (device) => <span title={machineWords(device)}>{peakWords(device)}</span> },
  { key: "tvm", title: "TVM", width: 10, cell: (device) => device.tvm_version },
  { key: "sandbox", title: "Sandbox", width: 10, cell: (device) => <Sandbox told={device.info.sandbox} /> },
  { key: "seen", title: "Seen", width: 13, numeric: true, cell: (device) => <When sec={device.last_seen} agoSec={device.silent_sec} /> },
];

const WORKERS: readonly Column<Worker>[] = [
  { key: "id", title: "Worker", width: 24, cell: (worker) => <span title={worker.id}>{worker.id}</span> },
  { key: "health", title: "State", width: 10, cell: (worker) => <Health words={worker.state} /> },
  { key: "work", title: "At work on", width: 28, cell: (worker) => <span title={worker.busy_with}>{worker.busy_with || "–"}</span> },
  { key: "host", title: "Host", width: 14, cell: (worker) => <span title={worker.host_id}>{worker.host_id}</span> },
  { key: "up", title: "Up for", width: 10, numeric: true, cell: (worker) => duration(worker.uptime_sec) },
  { key: "sandbox", title: "Sandbox", width: 10, cell: (worker) => <Sandbox told={worker.info.sandbox} /> },
  { key: "seen", title: "Seen", width: 13, numeric: true, cell: (worker) => <When sec={worker.last_seen} agoSec={worker.silent_sec} /> },
];
