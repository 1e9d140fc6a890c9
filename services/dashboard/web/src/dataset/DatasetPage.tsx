/** What is known: how much was measured, and the best verified schedule of every workload. */
import { type ReactNode, useMemo } from "react";
import { all, get } from "../api/client";
import { useResource } from "../api/resource";
import type { Model, Schedule, ScheduleLookup } from "../api/types";
import { bytes, clock, count, latency, target, tiny } from "../format";
import { formatRoute, useChoices, useOrder, useTitle } from "../route";
import { Choice, type Option, TextField } from "../ui/fields";
import { Fact, Facts, Section } from "../ui/parts";
import { Empty, Shown } from "../ui/states";
import { type Column, Table } from "../ui/Table";
import { byTarget, fitting, lookupQuery } from "./counts";
import { Numbers } from "./Numbers";

const REFRESH_SEC = 10;

export function DatasetPage(): ReactNode {
  useTitle("Dataset");
  const schedules = useResource<Schedule[]>("schedules", (signal) => all("schedules", {}, signal), REFRESH_SEC);
  const models = useResource<Model[]>("models", (signal) => all("models", {}, signal), REFRESH_SEC);
  return (
    <>
      <h1>Dataset</h1>
      <Numbers />
      <Section id="schedules" title="Schedules">
        <Shown of={schedules} what="schedules" none={<Empty title="No schedules yet">A job promotes the best of each task when it finishes, once it was measured again and checked.</Empty>}>
          {(items) => <Schedules items={items} />}
        </Shown>
      </Section>
      <Section id="models" title="Models">
        <Shown of={models} what="models" none={<Empty title="No models yet" />}>{(items) => <Table label="Models" columns={MODELS} rows={items} rowKey={(model) => model.id} />}</Shown>
      </Section>
    </>
  );
}

/** What the service finds by operator, shapes and type; if nothing fits, the nearest workloads and in what they differ. */
function Lookup({ text, wanted }: { text: string; wanted: string }): ReactNode {
  const lookup = useResource<ScheduleLookup>(`lookup ${wanted} ${text}`, (signal) => get("schedules/lookup", lookupQuery(text, wanted), signal), null);
  const nearest = (rows: ScheduleLookup["nearest"]) => rows.map((row, i) => <p key={i}>Nearest: {row.workload_name}, {latency(row.latency_us)}; {Object.entries(row.differences).map(([field, words]) => `${field}: ${words}`).join("; ") || "not verified"}</p>);
  return (
    <Shown of={lookup} what="schedules">
      {(answer) => answer.found.length > 0 ? <Found rows={answer.found} /> : <Empty title="No schedule fits">{nearest(answer.nearest)}</Empty>}
    </Shown>
  );
}

function Found({ rows }: { rows: readonly Schedule[] }): ReactNode {
  return <Table label="Schedules" columns={SCHEDULES} rows={rows} rowKey={(schedule) => String(schedule.id)} {...useOrder("sort", "-latency")} />;
}

function Schedules({ items }: { items: readonly Schedule[] }): ReactNode {
  const [choices, choose] = useChoices();
  const counts = useMemo(() => byTarget(items), [items]);
  const targets: Option[] = [["", "all"], ...counts.map((entry): Option => [entry.target, target(entry.target)])];
  const wanted = choices["target"] ?? "";
  const text = choices["q"] ?? "";
  const shown = useMemo(() => fitting(items, wanted, text), [items, wanted, text]);
  return (
    <>
      <Facts>
        {counts.map((entry) => (
          <Fact key={entry.target} name={target(entry.target)} note={`${count(entry.workloads)} workloads`}>{count(entry.schedules)} <small>schedules</small></Fact>
        ))}
      </Facts>
      <div className="toolbar">
        <Choice label="Target" value={wanted} options={targets} onChoose={(target) => choose({ target })} />
        <TextField label="Find" type="search" value={text} placeholder="workload, operator or 1x56x56x64" onText={(q) => choose({ q })} />
        <span className="count" role="status">{count(shown.length)} of {count(items.length)}</span>
      </div>
      {shown.length > 0 ? <Found rows={shown} /> : <Lookup text={text} wanted={wanted} />}
    </>
  );
}

const SCHEDULES: readonly Column<Schedule>[] = [
  { key: "workload", title: "Workload", width: 30, value: (row) => row.workload_name, cell: (row) => <span title={row.workload}>{row.workload_name}</span> },
  { key: "target", title: "Target", width: 18, value: (row) => target(row.target), cell: (row) => <span title={row.target}>{target(row.target)}</span> },
  { key: "latency", title: "Latency", width: 10, numeric: true, value: (row) => row.latency_us, cell: (row) => `${row.is_bound ? "≤ " : ""}${latency(row.latency_us)}` },
  { key: "interval", title: "Confidence interval", width: 18, numeric: true, cell: (row) => `${latency(row.low_us)} … ${latency(row.high_us)}` },
  { key: "error", title: "Error", help: "Largest relative error against the unscheduled program", width: 10, numeric: true, value: (row) => row.max_error, cell: (row) => tiny(row.max_error) },
  { key: "job", title: "Job", width: 17, cell: (row) => (row.job_id === null ? "–" : <a href={formatRoute(["jobs", row.job_id])}>{row.job_id}</a>) },
  { key: "when", title: "Promoted", width: 17, numeric: true, value: (row) => row.created_at, cell: (row) => clock(row.created_at) },
];

const MODELS: readonly Column<Model>[] = [
  { key: "name", title: "Model", width: 30, cell: (model) => <span title={model.name}>{model.name}</span> },
  { key: "id", title: "SHA-256", width: 40, cell: (model) => <code title={model.id}>{model.id}</code> },
  { key: "size", title: "Size", width: 12, numeric: true, cell: (model) => bytes(model.size_bytes) },
  { key: "when", title: "Uploaded", width: 16, numeric: true, cell: (model) => clock(model.created_at) },
];
