/** The options of a job: every choice that the server knows, with its default. */
import type { ReactNode } from "react";
import { get } from "../api/client";
import { useResource } from "../api/resource";
import type { JobOption, List } from "../api/types";
import { plural } from "../format";
import { Shown } from "../ui/states";
import { askable, chosenOptions, standing, title, type Given } from "./options";

type Props = { options: readonly JobOption[]; given: Given; onChange: (given: Given) => void };

export function useOptions(): ReturnType<typeof useResource<List<JobOption>>> {
  return useResource<List<JobOption>>("options", (signal) => get("options", {}, signal), null);
}

export function Options({ of, given, onChange }: { of: ReturnType<typeof useOptions>; given: Given; onChange: (given: Given) => void }): ReactNode {
  const changed = Object.keys(chosenOptions(of.data?.items ?? [], given)).length;
  return (
    <details className="options">
      <summary>Options{changed > 0 && ` (${plural(changed, "choice")} of yours)`}</summary>
      <Shown of={of} what="the options">
        {({ items }) => <Fields options={askable(items)} given={given} onChange={onChange} />}
      </Shown>
    </details>
  );
}

function Fields({ options, given, onChange }: Props): ReactNode {
  return (
    <div className="fields">
      {options.map((option) => (
        <Field key={option.name} option={option} text={given[option.name] ?? ""} onChange={(text) => onChange({ ...given, [option.name]: text })} />
      ))}
    </div>
  );
}

function Field({ option, text, onChange }: { option: JobOption; text: string; onChange: (text: string) => void }): ReactNode {
  const hint = `option-${option.name}`;
  return (
    <div>
      <label>
        {title(option.name)}
        <Control option={option} text={text} hint={hint} onChange={onChange} />
      </label>
      <small id={hint}>{option.words}</small>
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
  const number = option.kind !== "texts";
  return (
    <input
      type={number ? "number" : "text"}
      value={text}
      placeholder={standing(option)}
      aria-describedby={hint}
      min={option.minimum ?? undefined}
      max={option.maximum ?? undefined}
      step={option.kind === "number" ? "any" : undefined}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}
