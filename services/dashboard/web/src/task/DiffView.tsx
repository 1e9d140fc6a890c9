/** Two texts beside one another, with what differs marked; or one text with its line numbers. */
import { useMemo, type ReactNode } from "react";
import { plural } from "../format";
import { diffLines, parting, type Line, type Side } from "./diff";

type Text = { title: string; text: string };

export function DiffView({ left, right }: { left: Text; right: Text }): ReactNode {
  const lines = useMemo(() => diffLines(left.text, right.text), [left.text, right.text]);
  const changed = lines.filter((line) => !line.same).length;
  return (
    <figure>
      <div className="code-box" tabIndex={0} role="group" aria-label={`${left.title} beside ${right.title}`}>
        <table className="code">
          <thead>
            <tr>
              <th scope="col" colSpan={2}>
                {left.title}
              </th>
              <th scope="col" colSpan={2}>
                {right.title}
              </th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line, at) => (
              <tr key={at}>
                <Half of={line.left} line={line} isLeft />
                <Half of={line.right} line={line} isLeft={false} />
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <figcaption>{changed === 0 ? "They are the same." : `${plural(changed, "line")} of ${lines.length} differ${changed === 1 ? "s" : ""}.`}</figcaption>
    </figure>
  );
}

export function CodeView({ title, text }: Text): ReactNode {
  return (
    <div className="code-box" tabIndex={0} role="group" aria-label={title}>
      <table className="code single">
        <thead>
          <tr>
            <th scope="col" colSpan={2}>
              {title}
            </th>
          </tr>
        </thead>
        <tbody>
          {text.split("\n").map((line, at) => (
            <tr key={at}>
              <td className="number">{at + 1}</td>
              <td className="line">{emphasised(line)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Half({ of, line, isLeft }: { of: Side | null; line: Line; isLeft: boolean }): ReactNode {
  if (of === null) return <td colSpan={2} className="nothing" />;
  const kind = line.same ? "" : isLeft ? " gone" : " came";
  return (
    <>
      <td className="number">{of.number}</td>
      <td className={`line${kind}`}>{line.same ? of.text : marked(line, isLeft)}</td>
    </>
  );
}

function marked({ left, right }: Line, isLeft: boolean): ReactNode {
  if (left === null || right === null) return left?.text ?? right?.text;
  const text = isLeft ? left.text : right.text;
  const found = parting(left.text, right.text);
  if (found === null) return text;
  const { start, endOne, endOther } = found;
  const end = isLeft ? endOne : endOther;
  return (
    <>
      {text.slice(0, start)}
      <mark>{text.slice(start, end)}</mark>
      {text.slice(end)}
    </>
  );
}

/** In a trace the decisions are what was tuned; all else follows from the sketch. */
function emphasised(line: string): ReactNode {
  const at = line.indexOf("decision=");
  if (at === -1) return line;
  return (
    <>
      {line.slice(0, at)}
      <strong>{line.slice(at, -1)}</strong>
      {line.slice(-1)}
    </>
  );
}
