/** Small pieces that several places show. */
import { type ReactNode, useEffect, useRef, useState } from "react";
import { age, date } from "../format";
import { formatRoute } from "../route";

/** `mark` where it is not coloured as its state. */
export function StateMark({ state, mark = state }: { state: string; mark?: string }): ReactNode {
  return <span className={`mark mark-${mark.replaceAll(" ", "-")}`}>{state}</span>;
}

/** The way back: to the jobs, and to one of them. */
export function Crumbs({ job }: { job?: { id: string; name: string } }): ReactNode {
  return (
    <p className="crumbs">
      <a href={formatRoute(["jobs"])}>Jobs</a>
      {job && (
        <>
          {" / "}
          <a href={formatRoute(["jobs", job.id])}>{job.name}</a>
        </>
      )}
    </p>
  );
}

/** A part of a page under its heading. */
export function Section({ id, title, children }: { id: string; title: string; children: ReactNode }): ReactNode {
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children}
    </section>
  );
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

/** Of a list of facts in words. */
export function Entry({ name, isId = false, children }: { name: string; isId?: boolean; children: ReactNode }): ReactNode {
  return (
    <>
      <dt>{name}</dt>
      <dd className={isId ? "id" : undefined}>{children}</dd>
    </>
  );
}

/** A way to what it names; a narrow cell may cut the name off. */
export function Goto({ to, name, title = name }: { to: readonly string[]; name: string; title?: string }): ReactNode {
  return (
    <a href={formatRoute(to)} title={title}>
      {name}
    </a>
  );
}

type SwitchProps = { label: string; name: string; options: readonly string[]; value: string; onChange: (option: string) => void };

export function Switch({ label, name, options, value, onChange }: SwitchProps): ReactNode {
  return (
    <div className="switch" role="radiogroup" aria-label={label}>
      {options.map((option) => (
        <label key={option}>
          <input type="radio" name={name} checked={option === value} onChange={() => onChange(option)} />
          {option}
        </label>
      ))}
    </div>
  );
}

export function AxisSwitch({ bySeconds, onChange }: { bySeconds: boolean; onChange: (seconds: boolean) => void }): ReactNode {
  return <Switch label="Horizontal axis" name="axis" options={["trials", "seconds"]} value={bySeconds ? "seconds" : "trials"} onChange={(axis) => onChange(axis === "seconds")} />;
}

type PressProps = { words: string; onPress: () => void; kind?: "primary" | "danger" | "small" | "more"; disabled?: boolean; title?: string | undefined; label?: string };

/** `label` where the words alone do not say of what. */
export function Press({ words, onPress, kind, disabled = false, title, label }: PressProps): ReactNode {
  return (
    <button type="button" className={kind} disabled={disabled} title={title} aria-label={label} onClick={onPress}>
      {words}
    </button>
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
      <Press words={leave} onPress={onLeave} />
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

/** `agoSec` where the server tells, whose clock may differ from the reader's. */
export function When({ sec, agoSec }: { sec: number | null | undefined; agoSec?: number }): ReactNode {
  if (sec == null) return "–";
  const words = date(sec);
  return (
    <>
      {age(agoSec ?? Math.max(0, Date.now() / 1000 - sec))} ago
      <small title={words}>
        <time dateTime={new Date(sec * 1000).toISOString()}>{words}</time>
      </small>
    </>
  );
}

export function Copy({ text, label = text }: { text: string; label?: string }): ReactNode {
  const code = useRef<HTMLElement>(null);
  const [done, setDone] = useState("");
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setDone("copied");
    } catch {
      // Without https there is no clipboard, and a browser may refuse it.
      if (code.current) getSelection()?.selectAllChildren(code.current);
      setDone("selected: press Ctrl+C");
    }
  };
  return (
    <span className="copy">
      <code ref={code} tabIndex={0}>
        {text}
      </code>
      <Press words="Copy" kind="small" label={`Copy ${label}`} onPress={() => void copy()} />
      <span role="status">{done}</span>
    </span>
  );
}
