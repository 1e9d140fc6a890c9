/** One job: how it stands, its curve, its tasks, why every round was made, and what failed. */
import { useMemo, type ReactNode } from "react";
import { get } from "../api/client";
import { useLive, type Liveness } from "../api/live";
import { useResource, type Resource } from "../api/resource";
import type { Job, List, Task } from "../api/types";
import { formatRoute } from "../route";
import { isFinal } from "../jobs/standing";
import { StateMark } from "../ui/parts";
import { Empty, Shown } from "../ui/states";
import { useTitle } from "../ui/title";
import { Actions } from "./Actions";
import { Curve } from "./Curve";
import { DecisionLog } from "./DecisionLog";
import { Failures } from "./Failures";
import { Graph } from "./Graph";
import { NoJob } from "./NoJob";
import { loadRounds, roundsOf, type Leaf } from "./log";
import { Summary } from "./Summary";
import { TaskTable } from "./TaskTable";

/** Beside the events, so that what waits without news (a lease, the time left) moves on too. */
const REFRESH_SEC = 10;

export function JobPage({ jobId }: { jobId: string }): ReactNode {
  const job = useResource<Job>(`job/${jobId}`, (signal) => get(`jobs/${jobId}`, {}, signal), REFRESH_SEC);
  const moving = job.data !== undefined && !isFinal(job.data);
  const tasks = useResource<List<Task>>(`tasks/${jobId}`, (signal) => get(`jobs/${jobId}/tasks`, {}, signal), null);
  const log = useResource<Leaf[]>(`rounds/${jobId}`, (signal, last) => loadRounds(jobId, signal, last), null);
  const refresh = (): void => [job, tasks, log].forEach((resource) => resource.refresh());
  const liveness = useLive(jobId, moving, refresh);
  const rounds = useMemo(() => roundsOf(log.data), [log.data]);
  useTitle(job.data?.name ?? "Job");
  if (job.data === undefined) return <NoJob jobId={jobId} of={job} />;
  const missing: Resource<unknown> | undefined = [log, tasks].find(({ data }) => data === undefined);

  return (
    <Shown of={job} what="the job">
      {(known) => (
        <>
          <p className="crumbs">
            <a href={formatRoute(["jobs"])}>Jobs</a>
          </p>
          <div className="title-row">
            <h1>
              {known.name} <StateMark state={known.state} /> <LiveMark liveness={liveness} />
            </h1>
            <Actions job={known} rounds={rounds} tasks={tasks.data?.items ?? []} onDone={refresh} />
          </div>
          {known.reason && <p className={known.state === "failed" ? "reason bad" : "reason"}>{known.reason}</p>}
          <Summary job={known} />
          <section aria-labelledby="curve">
            <h2 id="curve">{isFinal(known) ? "Latency" : "Latency so far"}</h2>
            {missing ? (
              <Shown of={missing} what="the curve">
                {() => null}
              </Shown>
            ) : (
              <Curve job={known} rounds={rounds} tasks={tasks.data?.items ?? []} />
            )}
          </section>
          <section aria-labelledby="tasks">
            <h2 id="tasks">Tasks</h2>
            <Shown of={tasks} what="the tasks">
              {({ items }) => (items.length === 0 ? <NoTasks job={known} /> : <TaskTable job={known} tasks={items} rounds={rounds} />)}
            </Shown>
          </section>
          <section aria-labelledby="decisions">
            <h2 id="decisions">Decisions</h2>
            <Shown of={log} what="the decisions">
              {() => <DecisionLog job={known} rounds={rounds} />}
            </Shown>
          </section>
          <Failures job={known} />
          <Graph graph={known.graph} />
        </>
      )}
    </Shown>
  );
}

function NoTasks({ job }: { job: Job }): ReactNode {
  if (isFinal(job)) return <Empty title="This job has no tasks" />;
  return <Empty title="No tasks yet">They are there once the model is imported.</Empty>;
}

const LIVE_WORDS: { [liveness in Liveness]: string } = {
  connecting: "connecting …",
  live: "live",
  polling: "every few seconds",
  ended: "",
};

function LiveMark({ liveness }: { liveness: Liveness }): ReactNode {
  const words = LIVE_WORDS[liveness];
  return words && <span className={`liveness liveness-${liveness}`}>{words}</span>;
}
