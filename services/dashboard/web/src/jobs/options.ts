/** The options of a job, as a form asks for them. */
import type { JobOption } from "../api/types";

export type Given = { readonly [name: string]: string };

/** Those that a form can ask for in a line; the others are for the command line and the API. */
export function askable(options: readonly JobOption[]): JobOption[] {
  const order = ["choice", "integer", "number", "texts"];
  return options
    .filter((option) => order.includes(option.kind))
    .sort((one, other) => order.indexOf(one.kind) - order.indexOf(other.kind));
}

/** What differs from the defaults, as the API takes it. */
export function chosenOptions(options: readonly JobOption[], given: Given): { [name: string]: unknown } {
  const found: { [name: string]: unknown } = {};
  for (const option of options) {
    const text = (given[option.name] ?? "").trim();
    if (text !== "" && text !== String(option.default)) found[option.name] = valueOf(option, text);
  }
  return found;
}

function valueOf(option: JobOption, text: string): unknown {
  if (option.kind === "texts") return text.split(/[\s,]+/).filter(Boolean);
  return option.kind === "choice" ? text : Number(text);
}

/** What stands in an empty field. */
export function standing(option: JobOption): string {
  if (option.default === null) return "as the planner finds right";
  return Array.isArray(option.default) ? "all" : String(option.default);
}

export function title(name: string): string {
  const words = name.replace(/_sec$/, "_in_seconds").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
