/** Trained cost models: a line for every family and target, its versions, and the way back to an earlier one. */
import { type ReactNode, useMemo, useState } from "react";
import { all } from "../api/client";
import { useResource } from "../api/resource";
import type { CostModel } from "../api/types";
import { count, percent, plural, target } from "../format";
import { useChoices, useOrder, useTitle } from "../route";
import { TextField } from "../ui/fields";
import { Empty, Shown } from "../ui/states";
import { type Column, Table } from "../ui/Table";
import { Press, When } from "../ui/parts";
import { ActivateDialog } from "./ActivateDialog";
import { accuracy, accuracyWords, type Line, lines, newestRows } from "./lines";
import { Versions } from "./Versions";

const REFRESH_SEC = 15;

export function CostModelsPage(): ReactNode {
  useTitle("Cost models");
  const models = useResource<CostModel[]>("costmodels", (signal) => all("costmodels", {}, signal), REFRESH_SEC);
  const [asked, setAsked] = useState<{ model: CostModel; line: Line } | null>(null);
  const close = (): void => {
    setAsked(null);
    models.refresh();
  };
  return (
    <>
      <h1>Cost models</h1>
      <Shown of={models} what="the cost models" none={<NoModels />}>
        {(known) => <Lines models={known} onActivate={(model, line) => setAsked({ model, line })} />}
      </Shown>
      {asked && <ActivateDialog {...asked} onClose={close} />}
    </>
  );
}

function NoModels(): ReactNode {
  return (
    <Empty title="No cost model yet">
      A job trains one for every family of its tasks, once some rounds have ended; <code>mallorn costmodels pretrain</code> fits one on the dataset.
    </Empty>
  );
}

type LinesProps = { models: readonly CostModel[]; onActivate: (model: CostModel, line: Line) => void };

function Lines({ models, onActivate }: LinesProps): ReactNode {
  const [choices, choose] = useChoices();
  const order = useOrder("sort", "-rows");
  const found = useMemo(() => lines(models), [models]);
  const text = (choices["q"] ?? "").trim().toLowerCase();
  const shown = useMemo(() => found.filter((line) => line.key.toLowerCase().includes(text)), [found, text]);
  const open = found.find((line) => line.key === choices["line"]) ?? shown[0];
  return (
    <>
      <div className="toolbar">
        <TextField label="Find" type="search" value={choices["q"] ?? ""} placeholder="family, model, target" onText={(q) => choose({ q })} />
        <span className="count" role="status">
          {plural(shown.length, "model")}, {plural(models.length, "version")}
        </span>
      </div>
      {shown.length === 0 ? (
        <Empty title="No cost model fits">
          <Press words={`Show all ${found.length}`} onPress={() => choose({ q: "" })} />
        </Empty>
      ) : (
        <Table
          label="Cost models"
          columns={columns((line) => choose({ line: line.key }), open?.key)}
          rows={shown}
          rowKey={(line) => line.key}
          rowHeight={54}
          cards
          {...order}
          rowClass={(line) => (line === open ? "picked" : "")}
        />
      )}
      {open && <Versions line={open} onActivate={(model) => onActivate(model, open)} />}
    </>
  );
}

function columns(onOpen: (line: Line) => void, openKey: string | undefined): Column<Line>[] {
  const numeric = true;
  return [
    {
      key: "family",
      title: "Family",
      width: 26,
      value: (line) => line.family,
      cell: (line) => (
        <button type="button" className="link" aria-pressed={line.key === openKey} onClick={() => onOpen(line)}>
          {line.family}
        </button>
      ),
    },
    { key: "name", title: "Model", width: 12, value: (line) => line.name, cell: (line) => line.name },
    { key: "target", title: "Target", width: 20, value: (line) => target(line.target), cell: (line) => <span title={line.target}>{target(line.target)}</span> },
    { key: "active", title: "In use", help: "The version that new rounds are proposed by", width: 10, numeric, value: (line) => line.active?.version, cell: (line) => activeWords(line) },
    { key: "accuracy", title: "Accuracy", help: "Pairs of candidates that the version in use puts in order; a half is chance", width: 14, numeric, value: accuracy, cell: (line) => <Accuracy share={accuracy(line)} /> },
    { key: "versions", title: "Versions", width: 9, numeric, value: (line) => line.versions.length, cell: (line) => count(line.versions.length) },
    { key: "rows", title: "Rows", help: "Measurements that the newest version was trained for", width: 9, numeric, value: newestRows, cell: (line) => count(newestRows(line)) },
    { key: "when", title: "Trained", width: 14, numeric, value: (line) => line.versions[0]?.created_at, cell: (line) => <When sec={line.versions[0]?.created_at} /> },
  ];
}

function Accuracy({ share }: { share: number | null }): ReactNode {
  const words = accuracyWords(share);
  return (
    <>
      {share !== null && percent(share)}
      {words && <small className={share === null ? "" : "bad"} title={words}>{words}</small>}
    </>
  );
}

function activeWords(line: Line): ReactNode {
  if (line.active === null) return "none";
  const newest = line.versions[0]?.version;
  return (
    <>
      {line.active.version} {newest !== undefined && newest > line.active.version && <small>of {newest}</small>}
    </>
  );
}
