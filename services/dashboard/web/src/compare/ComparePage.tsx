/** Two or more jobs over one another. */
import { type ReactNode, useMemo } from "react";
import { useResource } from "../api/resource";
import { isFinal } from "../jobs/standing";
import { formatRoute, useChoices, useTitle } from "../route";
import { Crumbs, Press, Section } from "../ui/parts";
import { Empty, Failed, Shown } from "../ui/states";
import { selection } from "../jobs/choose";
import { CompareChart } from "./CompareChart";
import { JobColumns, TaskColumns } from "./columns";
import { type Entry, loadAll } from "./overlay";

const REFRESH_SEC = 5;
/** As many as there are colours, and columns that a screen holds. */
const MOST = 6;

export function ComparePage(): ReactNode {
  useTitle("Compare");
  const [choices] = useChoices();
  const ids = [...selection(choices["jobs"])];
  return (
    <>
      <Crumbs />
      <h1>Compare</h1>
      {ids.length < 2 ? (
        <Empty title="Choose two jobs or more">
          <p>
            Select them <a href={formatRoute(["jobs"])}>in the list</a> and press “Compare”.
          </p>
        </Empty>
      ) : (
        <Jobs key={ids.join()} ids={ids.slice(0, MOST)} left={ids.length - MOST} />
      )}
    </>
  );
}

function Jobs({ ids, left }: { ids: readonly string[]; left: number }): ReactNode {
  const entries = useResource<Entry[]>(`compare/${ids.join()}`, (signal, last) => loadAll(ids, signal, last), REFRESH_SEC);
  return (
    <Shown of={entries} what="the jobs">
      {(known) => (
        <>
          {left > 0 && <p className="stale">The first {MOST} of the {MOST + left} jobs are shown.</p>}
          {known.map(({ id, error, found }) => error && <Missing key={id} id={id} error={error} kept={found !== undefined} />)}
          <Comparison entries={known} />
        </>
      )}
    </Shown>
  );
}

function Missing({ id, error, kept }: { id: string; error: NonNullable<Entry["error"]>; kept: boolean }): ReactNode {
  const [choices, choose] = useChoices();
  if (kept) return <p className="stale" role="status">{error.message} What is shown of {id} is from before.</p>;
  const others = [...selection(choices["jobs"])].filter((other) => other !== id);
  return (
    <>
      <Failed error={error} />
      <p>
        <Press words={`Go on without ${id}`} onPress={() => choose({ jobs: others.join() })} />
      </p>
    </>
  );
}

function Comparison({ entries }: { entries: readonly Entry[] }): ReactNode {
  const jobs = useMemo(() => entries.flatMap(({ found }) => found ?? []), [entries]);
  if (jobs.length === 0) return null;
  const targets = new Set(jobs.map(({ job }) => job.target));
  const models = new Set(jobs.map(({ job }) => job.model_id));
  const running = jobs.filter(({ job }) => !isFinal(job)).length;
  return (
    <>
      {targets.size > 1 && <p className="stale">These jobs have {targets.size} targets: their times do not compare.</p>}
      {models.size > 1 && <p className="stale">These jobs tune {models.size} models: only tasks that they share compare.</p>}
      {running > 0 && <p className="note">{running} of them not ended: looked at every few seconds.</p>}
      <Section id="curves" title="Latency so far">
        <CompareChart jobs={jobs} />
      </Section>
      <Section id="columns" title="Job beside job">
        <JobColumns jobs={jobs} />
      </Section>
      <Section id="tasks" title="Task beside task">
        <TaskColumns jobs={jobs} />
      </Section>
    </>
  );
}
