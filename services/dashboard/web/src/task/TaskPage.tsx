/** One task of a job: every measurement, how far its cost model can be trusted, and what came out. */
import { type ReactNode, useEffect, useMemo } from "react";
import { all, get } from "../api/client";
import { useLive } from "../api/live";
import { type Resource, useResource } from "../api/resource";
import type { Job, List, MeasuredRecord, Round, Task } from "../api/types";
import { count, digits, flops, latency } from "../format";
import { answerOf, inFull, inShort } from "../job/answers";
import { NoJob } from "../job/NoJob";
import { stockOf } from "../job/figures";
import { isFinal } from "../jobs/standing";
import { formatRoute, useTitle } from "../route";
import { Crumbs, Fact, Facts, Section, StateMark } from "../ui/parts";
import { Empty, Shown } from "../ui/states";
import { loadRecords } from "./measurements";
import { Prediction, ScatterChart } from "./charts";
import { RecordTable } from "./RecordTable";
import { Schedules } from "./Schedules";

export function TaskPage({ jobId, index }: { jobId: string; index: number }): ReactNode {
  const job = useResource<Job>(`job/${jobId}`, (signal) => get(`jobs/${jobId}`, {}, signal), null);
  const tasks = useResource<List<Task>>(`tasks/${jobId}`, (signal) => get(`jobs/${jobId}/tasks`, {}, signal), null);
  const task = tasks.data?.items.find((known) => known.index === index);
  useLive(jobId, job.data !== undefined && !isFinal(job.data), () => [job, tasks].forEach((resource) => resource.refresh()));
  useTitle(task?.name ?? "Task");
  if (job.data === undefined) return <NoJob jobId={jobId} of={job} />;
  if (task === undefined) return <NoTask job={job.data} of={tasks} />;
  return (
    <Shown of={job} what="the job">
      {(known) => <TaskView job={known} task={task} />}
    </Shown>
  );
}

function NoTask({ job, of }: { job: Job; of: Resource<List<Task>> }): ReactNode {
  return (
    <>
      <Crumbs job={job} />
      <h1>Task</h1>
      <Shown of={of} what="the task">
        {() => (
          <Empty title="This job has no such task">
            <a href={formatRoute(["jobs", job.id])}>To the job</a>
          </Empty>
        )}
      </Shown>
    </>
  );
}

function TaskView({ job, task }: { job: Job; task: Task }): ReactNode {
  const seen = `${task.trials}/${task.state}`;
  const answer = answerOf(job, task);
  const stock = stockOf(task);
  return (
    <>
      <Crumbs job={job} />
      <h1 className="long">
        {task.name} <StateMark state={task.state} />
      </h1>
      {task.reason && <p className="reason">{task.reason}</p>}
      <Facts>
        <Fact name="Latency" note={`${latency(task.weighted_latency_us)} with its weight of ${task.weight}`}>
          {latency(task.latency_us)}
        </Fact>
        {stock !== null && (
          <Fact name={stock.name} note={stock.note}>
            {stock.value}
          </Fact>
        )}
        <Fact name="Speed" note={`${flops(task.flops)} a call`}>
          {task.gflops === null ? "–" : `${digits(task.gflops)} GFLOPS`}
        </Fact>
        <Fact name="Trials" note={task.failures > 0 ? `${count(task.failures)} failed` : "none failed"}>
          {count(task.trials)}
        </Fact>
        {answer !== null && (
          <Fact name="Answered by" note={inFull(answer)}>
            {inShort(answer)}
          </Fact>
        )}
        <Fact name="Family" note={task.family_why}>
          <span className="target">{task.family}</span>
        </Fact>
      </Facts>
      <Measurements job={job} task={task} seen={seen} />
    </>
  );
}

type Known = { seen: string; rows: MeasuredRecord[]; rounds: Round[] };

function Measurements({ job, task, seen }: { job: Job; task: Task; seen: string }): ReactNode {
  const records = useResource<Known>(`records/${job.id}/${task.workload}`, (signal, last) => load(job, task, seen, signal, last), null);
  const { refresh } = records;
  const outdated = records.data !== undefined && records.data.seen !== seen;
  useEffect(() => {
    if (outdated) refresh();
  }, [outdated, seen, refresh]);
  const { rows, rounds } = useMemo(() => records.data ?? { rows: [], rounds: [] }, [records.data]);
  return (
    <Shown of={records} what="the measurements">
      {() =>
        rows.length === 0 ? (
          <>
            <Empty title="Nothing measured yet">What other jobs know of this workload is in the latency above.</Empty>
            <Schedules job={job} task={task} />
          </>
        ) : (
          <>
            <Section id="scatter" title="Measurements over time">
              <ScatterChart records={rows} createdAt={job.created_at} />
            </Section>
            <Section id="predicted" title="Predicted against measured">
              <Prediction records={rows} rounds={rounds} />
            </Section>
            <Schedules job={job} task={task} />
            <Section id="records" title="All measurements">
              <RecordTable records={rows} />
            </Section>
          </>
        )
      }
    </Shown>
  );
}

async function load(job: Job, task: Task, seen: string, signal: AbortSignal, last: Known | undefined): Promise<Known> {
  const [rows, rounds] = await Promise.all([
    loadRecords(job.id, task.workload, signal, last?.rows),
    all<Round>(`jobs/${job.id}/rounds`, { task: task.index, order: "oldest" }, signal),
  ]);
  return { seen, rows, rounds };
}
