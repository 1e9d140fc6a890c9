/** The options of a job, as a form asks for them. */
import type { JobOption } from "../api/types";

export type Given = { readonly [name: string]: string };
type Values = { readonly [name: string]: unknown };

const ORDER: readonly JobOption["kind"][] = ["choice", "boolean", "integer", "number", "text", "texts", "shapes", "object"];

/** All of them, those that are chosen among names first. */
export function askable(options: readonly JobOption[]): JobOption[] {
  return [...options].sort((one, other) => ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind));
}

/** What differs from the defaults, as the API takes it. */
export function chosenOptions(options: readonly JobOption[], given: Given): { [name: string]: unknown } {
  const found: { [name: string]: unknown } = {};
  for (const option of options) {
    const text = (given[option.name] ?? "").trim();
    if (text !== "" && text !== formatValue(option.default)) found[option.name] = valueOf(option, text);
  }
  return found;
}

/** A job's options as they stand in the fields of the form. */
export function givenBy(values: Values): Given {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, formatValue(value)]));
}

/** `yes` or `no` of a boolean, `a, b` of a list, `x:1,3 y:8` of shapes, `number=3 repeat=1` of a group. */
export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value !== "object") return String(value);
  return Object.entries(value)
    .map(([name, part]) => (Array.isArray(part) ? `${name}:${part.join(",")}` : `${name}=${String(part)}`))
    .join(" ");
}

function valueOf({ kind }: JobOption, text: string): unknown {
  if (kind === "boolean") return text === "yes";
  if (kind === "texts") return text.split(/[\s,]+/).filter(Boolean);
  if (kind === "shapes") return parts(text, ":", (sizes) => sizes.split(",").map(Number));
  if (kind === "object") return parts(text, "=", (value) => (Number.isNaN(Number(value)) ? value : Number(value)));
  return kind === "choice" || kind === "text" ? text : Number(text);
}

function parts(text: string, sign: string, read: (value: string) => unknown): Values {
  const pairs = text.split(/\s+/).map((pair): [string, unknown] => [pair.slice(0, pair.lastIndexOf(sign)), read(pair.slice(pair.lastIndexOf(sign) + 1))]);
  return Object.fromEntries(pairs);
}

/** What a field of text must look like, for the browser to check. */
export const PATTERNS: { readonly [kind in JobOption["kind"]]?: string } = {
  shapes: "\\s*(\\S+:\\d+(,\\d+)*\\s*)*",
  object: "\\s*(\\w+=\\w+(\\.\\d+)?\\s*)*",
};

/** What stands in an empty field. */
export function standing(option: JobOption): string {
  if (option.kind === "shapes") return "as in the model; else x:1,3,224,224";
  if (option.default === null) return "as the planner finds right";
  return Array.isArray(option.default) ? "all" : formatValue(option.default);
}

export function title(name: string): string {
  const words = name.replace(/_sec$/, "_in_seconds").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
