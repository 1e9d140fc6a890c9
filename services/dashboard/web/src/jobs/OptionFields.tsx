/** The options of a job: every choice that the server knows, with its default. */
import { useState, type ReactNode } from "react";
import { get } from "../api/client";
import { useResource } from "../api/resource";
import type { JobOption, List } from "../api/types";
import { plural } from "../format";
import { Shown } from "../ui/states";
import { askable, chosenOptions, formatValue, PATTERNS, standing, title, type Given } from "./options";

export function useOptions(): ReturnType<typeof useResource<List<JobOption>>> {
  return useResource<List<JobOption>>("options", (signal) => get("options", {}, signal), null);
}

type OptionsProps = { of: ReturnType<typeof useOptions>; given: Given; onChange: (given: Given) => void; children: ReactNode };

/** `children` are fields of what is no option of the schema. */
export function Options({ of, given, onChange, children }: OptionsProps): ReactNode {
  const [isPrefilled] = useState(Object.keys(given).length > 0);
  const changed = Object.keys(chosenOptions(of.data?.items ?? [], given)).length;
  return (
    <details className="options" open={isPrefilled}>
      <summary>Options{changed > 0 && ` (${plural(changed, "choice")} of yours)`}</summary>
      <Shown of={of} what="the options">
        {({ items }) => (
          <div className="fields">
            {children}
            {askable(items).map((option) => (
              <Field key={option.name} option={option} text={given[option.name] ?? ""} onChange={(text) => onChange({ ...given, [option.name]: text })} />
            ))}
          </div>
        )}
      </Shown>
    </details>
  );
}

function Field({ option, text, onChange }: { option: JobOption; text: string; onChange: (text: string) => void }): ReactNode {
  const hint = `option-${option.name}`;
  return (
    <div>
      <label className={option.kind === "boolean" ? "check" : undefined}>
        <span>
          {title(option.name)} <code>{option.name}</code>
        </span>
        <Control option={option} text={text} hint={hint} onChange={onChange} />
      </label>
      <small id={hint}>{option.description}</small>
    </div>
  );
}

function Control({ option, text, hint, onChange }: { option: JobOption; text: string; hint: string; onChange: (text: string) => void }): ReactNode {
  if (option.kind === "choice") {
    return (
      <select value={text || String(option.default)} aria-describedby={hint} onChange={(event) => onChange(event.target.value)}>
        {option.choices.map((choice) => (
          <option key={choice} value={choice}>
            {choice}
            {choice === option.default && " (default)"}
          </option>
        ))}
      </select>
    );
  }
  if (option.kind === "boolean") {
    const isOn = (text || formatValue(option.default)) === "yes";
    return <input type="checkbox" checked={isOn} aria-describedby={hint} onChange={(event) => onChange(formatValue(event.target.checked))} />;
  }
  const number = option.kind === "integer" || option.kind === "number";
  return (
    <input
      type={number ? "number" : "text"}
      value={text}
      placeholder={standing(option)}
      aria-describedby={hint}
      pattern={PATTERNS[option.kind]}
      title={PATTERNS[option.kind] && `As ${standing(option).split("; else ").at(-1)}`}
      min={option.minimum ?? undefined}
      max={option.maximum ?? undefined}
      step={option.kind === "number" ? "any" : undefined}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}
