/** What the list of jobs is filtered by: the address keeps it, and the server applies it. */
import { useEffect, useState, type ReactNode } from "react";
import type { Query } from "../api/client";
import { isAdmin, useSession } from "../api/session";
import type { Choices } from "../route";
import { Choice, TextField, type Option } from "../ui/fields";
import { FINAL } from "./standing";

/** Not a state of a job, but chosen among them. */
const ARCHIVED = "archived";
const ACTIVE = ["queued", "importing", "tuning", "finishing", "paused"];
const STATES: readonly Option[] = [["", "all"], ["active", "not ended"], ...[...ACTIVE, ...FINAL, ARCHIVED].map((name): Option => [name, name])];
const FIELDS: readonly (readonly [name: string, label: string, placeholder: string])[] = [
  ["label", "Label", "team=vision"],
  ["model", "Model", "beginning of its id"],
];
const DAYS: readonly (readonly [name: string, label: string])[] = [["since", "Since"], ["before", "Before"]];
const SETTLED_MS = 300;
/** Choices that show all jobs. */
export const NO_FILTER: Choices = Object.fromEntries(["state", "q", "owner", ...FIELDS.map(([name]) => name), ...DAYS.map(([name]) => name)].map((name) => [name, ""]));

/** The parameters of `GET /jobs`. */
export function filterQuery(choices: Choices): Query {
  const state = choices["state"] ?? "";
  const second = (day: string | undefined): number | null => (day ? Date.parse(`${day}T00:00Z`) / 1000 : null);
  return {
    archived: state === ARCHIVED || null,
    state: state === "active" ? ACTIVE : state === ARCHIVED ? null : state,
    name: choices["q"],
    label: (choices["label"] ?? "").split(",").map((label) => label.trim()).filter(Boolean),
    model: choices["model"],
    owner: choices["owner"],
    created_after: second(choices["since"]),
    created_before: second(choices["before"]),
  };
}

export const isFiltered = (choices: Choices): boolean => Object.keys(NO_FILTER).some((name) => choices[name]);

/** The query of the choices, once nothing was typed for a moment. */
export function useFilterQuery(choices: Choices): Query {
  const text = JSON.stringify(filterQuery(choices));
  const [settled, settle] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => settle(text), SETTLED_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return JSON.parse(settled) as Query;
}

export function Filters({ choices, choose }: { choices: Choices; choose: (changes: Choices) => void }): ReactNode {
  const admin = isAdmin(useSession().data);
  const field = (name: string) => ({ value: choices[name] ?? "", onText: (text: string) => choose({ [name]: text }) });
  return (
    <>
      <Choice label="State" value={choices["state"] ?? ""} options={STATES} onChoose={(state) => choose({ state })} />
      <TextField label="Find" type="search" placeholder="name, or beginning of the id" {...field("q")} />
      {FIELDS.map(([name, label, placeholder]) => <TextField key={name} label={label} type="search" placeholder={placeholder} {...field(name)} />)}
      {admin && <TextField label="Owner" type="search" {...field("owner")} />}
      {DAYS.map(([name, label]) => <TextField key={name} label={label} type="date" {...field(name)} />)}
    </>
  );
}
