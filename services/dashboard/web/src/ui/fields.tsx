/** Inputs under their names. */
import type { InputHTMLAttributes, ReactNode } from "react";

type TextProps = InputHTMLAttributes<HTMLInputElement> & { label: ReactNode; onText?: (text: string) => void };

/** Without `onText` the form around it reads what was typed. */
export function TextField({ label, onText, ...input }: TextProps): ReactNode {
  return (
    <label>
      {label}
      <input {...input} onChange={onText && ((event) => onText(event.target.value))} />
    </label>
  );
}

export type Option = readonly [value: string, words: string];
type ChoiceProps = { label: string; value: string; options: readonly Option[]; onChoose: (value: string) => void };

export function Choice({ label, value, options, onChoose }: ChoiceProps): ReactNode {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onChoose(event.target.value)}>
        {options.map(([name, words]) => (
          <option key={name} value={name}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}
