/** The API's shapes by short names; schema.d.ts is generated from services/openapi.json. */
import type { components } from "./schema";

type Schemas = components["schemas"];
/** What a part of the job did not manage, and how often. */
export type Warning = { source: string; message: string; hint: string; count: number };
/** The last two are of newer servers. */
export type Job = Schemas["JobOut"] & { warnings?: Warning[]; archived?: boolean };
export type JobState = Schemas["JobState"];
export type Task = Schemas["TaskOut"];
export type Round = Schemas["RoundOut"];
export type MeasuredRecord = Schemas["RecordOut"];
export type Schedule = Schemas["ScheduleOut"];
export type WholeSchedule = Schemas["WholeScheduleOut"];
export type CostModel = Schemas["CostModelOut"];
export type Activity = Schemas["ActivityOut"];
export type Stint = Schemas["StintOut"];
export type StageRun = Schemas["StageOut"];
export type JobOption = Schemas["OptionOut"];
export type Statistics = Schemas["StatisticsOut"];
export type Worker = Schemas["WorkerOut"];
export type Device = Schemas["DeviceOut"];
export type Model = Schemas["ModelOut"];
export type NewJob = Pick<Schemas["JobIn"], "model_id" | "target"> & Partial<Omit<Schemas["JobIn"], "options">> & { options?: { [name: string]: unknown } };
export type ErrorBody = Schemas["ErrorBody"];
export type Page<Item> = { items: Item[]; next_cursor: string | null };
export type List<Item> = { items: Item[] };
