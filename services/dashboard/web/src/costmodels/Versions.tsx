/** The versions of one line: what each learned from, how well it does, and which is in use. */
import type { ReactNode } from "react";
import type { CostModel } from "../api/types";
import { clock, count, plural, target } from "../format";
import { Press, Section } from "../ui/parts";
import { Table, type Column } from "../ui/Table";
import { isBack, measures, measureTitle, measureWords, otherSplits, type Line } from "./lines";

type Props = { line: Line; onActivate: (model: CostModel) => void };

export function Versions({ line, onActivate }: Props): ReactNode {
  return (
    <Section id="versions" title={`Versions of ${line.family} / ${line.name}`}>
      <p className="note">
        {plural(line.versions.length, "version")} for {target(line.target)}. New rounds are proposed by the one in use, and training goes on from it.
      </p>
      <Table label="Versions" columns={columns(line, onActivate)} rows={line.versions} rowKey={(model) => String(model.id)} rowClass={(model) => (model.active ? "picked" : "")} />
    </Section>
  );
}

function columns(line: Line, onActivate: (model: CostModel) => void): Column<CostModel>[] {
  const numeric = true;
  return [
    { key: "version", title: "Version", width: 8, numeric, cell: (model) => model.version },
    {
      key: "use",
      title: "In use",
      width: 13,
      cell: (model) =>
        model.active ? (
          <span className="mark mark-done">in use</span>
        ) : (
          <Press words={isBack(model, line) ? "Go back …" : "Use …"} kind="small" label={`${isBack(model, line) ? "Go back to" : "Use"} version ${model.version}`} onPress={() => onActivate(model)} />
        ),
    },
    { key: "parent", title: "Went on from", width: 12, numeric, cell: (model) => parentWords(model) },
    { key: "rows", title: "Rows", help: "Measurements it was trained for", width: 8, numeric, cell: (model) => count(model.rows) },
    {
      key: "data",
      title: "Data",
      help: "A frozen snapshot, or the family's rows up to a measurement",
      width: 18,
      cell: (model) => (model.snapshot === null ? `its family up to #${model.seen_upto}` : <span title={model.snapshot}>snapshot {model.snapshot}</span>),
    },
    ...(judged(line) ? [{ key: "split", title: "Judged", help: "What was held out of the fit: the measures are of the first; of the others, the pairs in order", width: 17, cell: splitCell }] : []),
    ...measures(line.versions).map((name) => ({
      key: `metric:${name}`,
      title: measureTitle(name),
      width: 13,
      numeric,
      cell: (model: CostModel) => measureWords(name, model.metrics[name as keyof CostModel["metrics"]]),
    })),
    { key: "when", title: "Trained", width: 22, numeric, cell: (model) => clock(model.created_at) },
  ];
}

function judged(line: Line): boolean {
  return line.versions.some(({ metrics }) => typeof metrics["split"] === "string");
}

function splitCell({ metrics }: CostModel): ReactNode {
  const others = otherSplits(metrics);
  return (
    <>
      {typeof metrics["split"] === "string" ? metrics["split"] : "–"}
      {others && <small title={others}>{others}</small>}
    </>
  );
}

function parentWords(model: CostModel): ReactNode {
  if (model.parent === null) return "–";
  return <span title={model.parent}>{model.parent.split("@").at(-1)}</span>;
}
