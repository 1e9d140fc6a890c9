/** The API's shapes by short names; schema.d.ts is generated from services/openapi.json. */
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Job = Schemas["JobOut"];
export type JobState = Schemas["JobState"];
export type Task = Schemas["TaskOut"];
export type Round = Schemas["RoundOut"];
export type MeasuredRecord = Schemas["RecordOut"];
export type Schedule = Schemas["ScheduleOut"];
export type Worker = Schemas["WorkerOut"];
export type Device = Schemas["DeviceOut"];
export type Model = Schemas["ModelOut"];
export type NewJob = Pick<Schemas["JobIn"], "model_id" | "target"> & Partial<Schemas["JobIn"]>;
export type ErrorBody = Schemas["ErrorBody"];
export type Page<Item> = { items: Item[]; next_cursor: string | null };
export type List<Item> = { items: Item[] };
