/** All jobs: how they stand, what they won, and ways to start and to end some. */
import { type ReactNode, useMemo, useState } from "react";
import { get, type Query } from "../api/client";
import { useResource } from "../api/resource";
import type { Job, Page } from "../api/types";
import { plural } from "../format";
import { go, useChoices, useOrder, useTitle } from "../route";
import { Press } from "../ui/parts";
import { Empty, Failed, Shown } from "../ui/states";
import { Table } from "../ui/Table";
import { CancelDialog } from "./CancelDialog";
import { formatSelection, merged, selection } from "./choose";
import { jobColumns } from "./columns";
import { Filters, isFiltered, NO_FILTER, useFilterQuery } from "./filters";
import { NoJobs } from "./NoJobs";
import { isFinal } from "./standing";
import { SubmitDialog } from "./SubmitDialog";
import { useOlderJobs } from "./older";
import { useDroppedFile } from "./drop";

const REFRESH_SEC = 4;
/** A job comes with its graph, some 5 kB: a page of them is asked for every few seconds. */
const PAGE_JOBS = 100;

export function JobsPage(): ReactNode {
  useTitle("Jobs");
  const [choices, choose] = useChoices();
  const order = useOrder("sort", "-created");
  const query = useFilterQuery(choices);
  const newest = useResource<Page<Job>>(JSON.stringify(query), (signal, last) => loadNewest(query, signal, last), REFRESH_SEC);
  const older = useOlderJobs(newest.data?.next_cursor ?? null, query);
  const [cancelling, setCancelling] = useState(false);
  const [submitting, setSubmitting] = useState(false);
  const dropped = useDroppedFile();
  const jobs = useMemo(() => merged(newest.data?.items ?? [], older.jobs), [newest.data, older.jobs]);
  const picked = selection(choices["sel"]);
  const cancellable = jobs.filter((job) => picked.has(job.id) && !isFinal(job));

  const toggle = (ids: readonly string[], on: boolean): void => {
    const next = new Set(picked);
    for (const id of ids) on ? next.add(id) : next.delete(id);
    choose({ sel: formatSelection(next) });
  };
  const closeCancelling = (): void => {
    setCancelling(false);
    newest.refresh();
  };
  const closeSubmitting = (): void => {
    setSubmitting(false);
    dropped.clear();
    newest.refresh();
  };
  const columns = jobColumns(jobs, picked, toggle);

  return (
    <>
      <div className="title-row">
        <h1>Jobs</h1>
        <Press words="Tune a model …" kind="primary" onPress={() => setSubmitting(true)} />
      </div>
      {(jobs.length > 0 || isFiltered(choices)) && (
        <div className="toolbar">
          <Filters choices={choices} choose={choose} />
        </div>
      )}
      <Shown of={newest} what="jobs">
        {() =>
          jobs.length === 0 && !isFiltered(choices) ? (
            <NoJobs onSubmit={() => setSubmitting(true)} onArchived={() => choose({ state: "archived" })} />
          ) : (
            <>
              <div className="toolbar">
                <span className="count" role="status">
                  {plural(jobs.length, "job")}
                  {older.more && ", and older ones"}
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
              {jobs.length === 0 ? (
                <Empty title="No job fits">
                  <Press words="Show all" onPress={() => choose(NO_FILTER)} />
                </Empty>
              ) : (
                <Table
                  label="Jobs"
                  columns={columns}
                  rows={jobs}
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
      {cancelling && <CancelDialog jobs={cancellable} onClose={closeCancelling} />}
      {dropped.over && <div className="drop-veil">Drop the ONNX file to tune it</div>}
      {(submitting || dropped.file) && <SubmitDialog file={dropped.file} onClose={closeSubmitting} />}
    </>
  );
}

/** New jobs push others off the first page: those stay, and "older" goes on from where it began. */
async function loadNewest(query: Query, signal: AbortSignal, last: Page<Job> | undefined): Promise<Page<Job>> {
  const page = await get<Page<Job>>("jobs", { ...query, limit: PAGE_JOBS }, signal);
  const oldest = page.items.at(-1);
  if (last === undefined || page.next_cursor === null || oldest === undefined) return page;
  const pushed = last.items.filter((job) => job.created_at < oldest.created_at);
  return { items: merged(page.items, pushed), next_cursor: last.next_cursor };
}
