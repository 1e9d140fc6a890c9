/** Small pieces that several places show. */
import { useEffect, useRef, type ReactNode } from "react";

/** `mark` where it is not coloured as its state. */
export function StateMark({ state, mark = state }: { state: string; mark?: string }): ReactNode {
  return <span className={`mark mark-${mark.replaceAll(" ", "-")}`}>{state}</span>;
}

export function Meter({ value, of, label }: { value: number; of: number; label: string }): ReactNode {
  const share = of > 0 ? Math.min(1, value / of) : 0;
  return (
    <span className="meter" role="img" aria-label={label}>
      <span className="meter-fill" style={{ width: `${share * 100}%` }} />
    </span>
  );
}

export function Facts({ children }: { children: ReactNode }): ReactNode {
  return <dl className="facts">{children}</dl>;
}

export function Fact({ name, note, children }: { name: string; note?: ReactNode; children: ReactNode }): ReactNode {
  return (
    <div className="fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
      {note && <dd className="note">{note}</dd>}
    </div>
  );
}

export function AxisSwitch({ bySeconds, onChange }: { bySeconds: boolean; onChange: (seconds: boolean) => void }): ReactNode {
  return (
    <div className="switch" role="radiogroup" aria-label="Horizontal axis">
      {["trials", "seconds"].map((axis) => (
        <label key={axis}>
          <input type="radio" name="axis" checked={(axis === "seconds") === bySeconds} onChange={() => onChange(axis === "seconds")} />
          {axis}
        </label>
      ))}
    </div>
  );
}

/** A dialog of the browser's own: it keeps the focus inside and closes on Escape. */
export function Dialog(props: { title: string; onClose: () => void; children: ReactNode }): ReactNode {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  return (
    <dialog ref={element} aria-labelledby="dialog-title" onClose={props.onClose}>
      <h2 id="dialog-title">{props.title}</h2>
      {props.children}
    </dialog>
  );
}

type ButtonsProps = { leave: string; act: string; busy?: boolean; danger?: boolean; onLeave: () => void; onAct?: () => void };

/** The end of a dialog: leave it, or do it. Without `onAct` the form around it is submitted. */
export function Buttons({ leave, act, busy = false, danger = false, onLeave, onAct }: ButtonsProps): ReactNode {
  return (
    <div className="buttons">
      <button type="button" onClick={onLeave}>
        {leave}
      </button>
      <button type={onAct ? "button" : "submit"} className={danger ? "danger" : "primary"} disabled={busy} onClick={onAct}>
        {act}
      </button>
    </div>
  );
}

/** A line through values in order, for a table's cell. */
export function Sparkline({ values, label }: { values: readonly number[]; label: string }): ReactNode {
  if (values.length < 2) return null;
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  const points = values
    .map((value, at) => `${((at / (values.length - 1)) * 78 + 1).toFixed(1)},${(19 - ((value - low) / range) * 18).toFixed(1)}`)
    .join(" ");
  return (
    <svg className="sparkline" viewBox="0 0 80 20" role="img" aria-label={label}>
      <polyline points={points} />
    </svg>
  );
}
