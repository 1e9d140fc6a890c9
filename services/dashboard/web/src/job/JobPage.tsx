/** One job: how it stands, its curve, its tasks, why every round was made, and what failed. */
import { type ReactNode, useMemo, useState } from "react";
import { get } from "../api/client";
import { type Liveness, useLive } from "../api/live";
import { type Resource, useResource } from "../api/resource";
import type { Job, List, Round, Task } from "../api/types";
import { useTitle } from "../route";
import { explanation, isFinal, mark } from "../jobs/standing";
import { SubmitDialog } from "../jobs/SubmitDialog";
import { useNarrow } from "../ui/Cards";
import { Crumbs, Section, StateMark } from "../ui/parts";
import { Empty, Shown } from "../ui/states";
import { About } from "./About";
import { Actions } from "./Actions";
import { obstacle } from "./advice";
import { FailedCard, Obstacle, Remarks, VerdictCard } from "./Cards";
import { Curve } from "./Curve";
import { DecisionLog } from "./DecisionLog";
import { Failures } from "./Failures";
import { Graph } from "./Graph";
import { NoJob } from "./NoJob";
import { type Leaf, loadRounds, roundsOf } from "./history";
import { Points } from "./Points";
import { StepSeconds } from "./StepSeconds";
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
  const [again, setAgain] = useState(false);
  useTitle(job.data?.name ?? "Job");
  const narrow = useNarrow();
  const actions = (known: Job): ReactNode => <Actions job={known} rounds={rounds} tasks={tasks.data?.items ?? []} onDone={refresh} onAgain={() => setAgain(true)} />;
  if (job.data === undefined) return <NoJob jobId={jobId} of={job} />;

  return (
    <Shown of={job} what="the job">
      {(known) => (
        <>
          <Crumbs />
          <div className="title-row">
            <h1>
              {known.name} <StateMark state={known.state} mark={mark(known)} /> <LiveMark liveness={liveness} />
            </h1>
            {!narrow && actions(known)}
          </div>
          {known.state === "failed" && <FailedCard job={known} onAgain={() => setAgain(true)} />}
          <Obstacle job={known} />
          <VerdictCard job={known} />
          {narrow && actions(known)}
          {known.state !== "failed" && obstacle(known, 0) === null && explanation(known) && <p className="reason">{explanation(known)}</p>}
          <Remarks job={known} />
          {!isBarren(known) && <Parts job={known} tasks={tasks} log={log} rounds={rounds} />}
          <About job={known} />
          {again && <SubmitDialog file={null} again={known} onClose={() => setAgain(false)} />}
        </>
      )}
    </Shown>
  );
}

/** It ended before it had a task: there is nothing to draw. */
const isBarren = (job: Job): boolean => isFinal(job) && job.progress.tasks === 0;

type PartsProps = { job: Job; tasks: Resource<List<Task>>; log: Resource<Leaf[]>; rounds: readonly Round[] };

function Parts({ job: known, tasks, log, rounds }: PartsProps): ReactNode {
  const missing: Resource<unknown> | undefined = [log, tasks].find(({ data }) => data === undefined);
  return (
    <>
      <Summary job={known} />
      <Points job={known} />
      <Section id="curve" title={isFinal(known) ? "Latency" : "Latency so far"}>
        {missing ? (
          <Shown of={missing} what="the curve">
            {() => null}
          </Shown>
        ) : (
          <Curve job={known} rounds={rounds} tasks={tasks.data?.items ?? []} />
        )}
      </Section>
      <StepSeconds job={known} />
      <Section id="tasks" title="Tasks">
        <Shown of={tasks} what="the tasks" none={<NoTasks job={known} />}>
          {({ items }) => <TaskTable job={known} tasks={items} rounds={rounds} />}
        </Shown>
      </Section>
      <Section id="decisions" title="Decisions">
        <Shown of={log} what="the decisions">
          {() => <DecisionLog job={known} rounds={rounds} />}
        </Shown>
      </Section>
      <Failures job={known} />
      <Graph graph={known.graph} />
    </>
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
