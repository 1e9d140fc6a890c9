/** All jobs: how they stand, what they won, and ways to start and to end some. */
import { type ReactNode, useMemo, useState } from "react";
import { get } from "../api/client";
import { useResource } from "../api/resource";
import type { Job, Page } from "../api/types";
import { plural } from "../format";
import { go, useChoices, useOrder, useTitle } from "../route";
import { Choice, type Option, TextField } from "../ui/fields";
import { Press } from "../ui/parts";
import { Empty, Failed, Shown } from "../ui/states";
import { Table } from "../ui/Table";
import { CancelDialog } from "./CancelDialog";
import { chosen, formatSelection, merged, selection } from "./choose";
import { jobColumns } from "./columns";
import { NoJobs } from "./NoJobs";
import { FINAL, isFinal } from "./standing";
import { SubmitDialog } from "./SubmitDialog";
import { useOlderJobs } from "./older";
import { useDroppedFile } from "./drop";

const REFRESH_SEC = 4;
/** A job comes with its graph, some 5 kB: a page of them is asked for every few seconds. */
const PAGE_JOBS = 100;
/** Not a state of a job, but chosen among them. */
const ARCHIVED = "archived";
const NAMES = ["queued", "importing", "tuning", "finishing", "paused", ...FINAL, ARCHIVED];
const STATES: readonly Option[] = [["", "all"], ["active", "not ended"], ...NAMES.map((name): Option => [name, name])];

export function JobsPage(): ReactNode {
  useTitle("Jobs");
  const [choices, choose] = useChoices();
  const order = useOrder("sort", "-created");
  const archived = choices["state"] === ARCHIVED;
  const newest = useResource<Page<Job>>(archived ? ARCHIVED : "jobs", (signal, last) => loadNewest(archived, signal, last), REFRESH_SEC);
  const older = useOlderJobs(newest.data?.next_cursor ?? null, archived);
  const [cancelling, setCancelling] = useState(false);
  const [submitting, setSubmitting] = useState(false);
  const dropped = useDroppedFile();
  const jobs = useMemo(() => merged(newest.data?.items ?? [], older.jobs), [newest.data, older.jobs]);
  const state = choices["state"] ?? "";
  const text = choices["q"] ?? "";
  const shown = useMemo(() => chosen(jobs, archived ? "" : state, text), [jobs, state, archived, text]);
  const picked = selection(choices["sel"]);
  const cancellable = jobs.filter((job) => picked.has(job.id) && !isFinal(job));

  const toggle = (ids: readonly string[], on: boolean): void => {
    const next = new Set(picked);
    for (const id of ids) on ? next.add(id) : next.delete(id);
    choose({ sel: formatSelection(next) });
  };
  const columns = jobColumns(shown, picked, toggle);

  return (
    <>
      <div className="title-row">
        <h1>Jobs</h1>
        <Press words="Tune a model …" kind="primary" onPress={() => setSubmitting(true)} />
      </div>
      <Shown of={newest} what="jobs">
        {() =>
          jobs.length === 0 && !archived ? (
            <NoJobs onSubmit={() => setSubmitting(true)} onArchived={() => choose({ state: ARCHIVED })} />
          ) : (
            <>
              <div className="toolbar">
                <Choice label="State" value={state} options={STATES} onChoose={(state) => choose({ state })} />
                <TextField label="Find" type="search" value={text} placeholder="name, target, id" onText={(q) => choose({ q })} />
                <span className="count" role="status">
                  {plural(shown.length, "job")}
                  {shown.length < jobs.length && ` of ${jobs.length}`}
                  {picked.size > 0 && `, ${picked.size} selected`}
                </span>
                {picked.size > 0 && (
                  <>
                    <Press words="Clear selection" onPress={() => choose({ sel: "" })} />
                    <Press words={`Compare ${picked.size}`} disabled={picked.size < 2} onPress={() => go(["compare"], { jobs: formatSelection(picked) })} />
                    <Press words={`Cancel ${cancellable.length} …`} kind="danger" disabled={cancellable.length === 0} onPress={() => setCancelling(true)} />
                  </>
                )}
              </div>
              {shown.length === 0 ? (
                <Empty title={archived && jobs.length === 0 ? "Nothing is archived" : "No job fits"}>
                  <Press words={archived ? "Show the others" : `Show all ${jobs.length}`} onPress={() => choose({ state: "", q: "" })} />
                </Empty>
              ) : (
                <Table
                  label="Jobs"
                  columns={columns}
                  rows={shown}
                  rowKey={(job) => job.id}
                  rowHeight={54}
                  cards
                  {...order}
                  rowClass={(job) => (picked.has(job.id) ? "picked" : "")}
                />
              )}
              {older.more && (
                <Press words={older.busy ? "Loading …" : "Load older jobs"} kind="more" disabled={older.busy} onPress={older.load} />
              )}
              {older.error && <Failed error={older.error} retry={older.load} />}
            </>
          )
        }
      </Shown>
      {cancelling && (
        <CancelDialog
          jobs={cancellable}
          onClose={() => {
            setCancelling(false);
            newest.refresh();
          }}
        />
      )}
      {dropped.over && <div className="drop-veil">Drop the ONNX file to tune it</div>}
      {(submitting || dropped.file) && (
        <SubmitDialog
          file={dropped.file}
          onClose={() => {
            setSubmitting(false);
            dropped.clear();
            newest.refresh();
          }}
        />
      )}
    </>
  );
}

/** New jobs push others off the first page: those stay, and "older" goes on from where it began. */
async function loadNewest(archived: boolean, signal: AbortSignal, last: Page<Job> | undefined): Promise<Page<Job>> {
  const page = await get<Page<Job>>("jobs", { limit: PAGE_JOBS, archived: archived || null }, signal);
  return last === undefined ? page : { items: merged(page.items, last.items), next_cursor: last.next_cursor };
}
