/** The API's shapes by short names; schema.d.ts is generated from services/openapi.json. */
import type { components } from "./schema";

type Schemas = components["schemas"];
export type Job = Schemas["JobStatus"];
export type OptionName = keyof Job["options"];
export type JobState = Schemas["JobState"];
export type Task = Schemas["TaskStatus"];
export type Round = Schemas["RoundStatus"];
export type MeasuredRecord = Schemas["Record"];
export type Schedule = Schemas["VerifiedSchedule"];
export type WholeSchedule = Schemas["WholeSchedule"];
export type CostModel = Schemas["CostModelVersion"];
export type Activity = Schemas["FleetActivity"];
export type Stint = Schemas["RoundOnWorker"];
export type StageRun = Schemas["StageOnWorker"];
export type JobOption = Schemas["OptionOut"];
export type Statistics = Schemas["DatasetStats"];
export type Worker = Schemas["WorkerStatus"];
export type Device = Schemas["DeviceStatus"];
export type ApiKey = Schemas["ApiKey"];
export type MadeKey = Schemas["NewApiKey"];
export type NewKey = Schemas["KeyIn"];
export type Session = Schemas["Session"];
export type Model = Schemas["UploadedModel"];
export type NewJob = Pick<Schemas["JobIn"], "model_id" | "target"> & Partial<Omit<Schemas["JobIn"], "options">> & { options?: { [name: string]: unknown } };
export type ErrorBody = Schemas["ErrorBody"];
export type Page<Item> = { items: Item[]; next_cursor: string | null };
export type List<Item> = { items: Item[] };
