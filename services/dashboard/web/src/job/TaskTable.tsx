/** MetaSchedule's table of tasks, with each task's way down and the belief of its next gain. */
import { type ReactNode, useMemo } from "react";
import type { Job, Round, Task } from "../api/types";
import { count, digits, flops, latency, percent } from "../format";
import { useOrder } from "../route";
import { isFinal } from "../jobs/standing";
import { Goto, Sparkline, StateMark } from "../ui/parts";
import { type Column, Table } from "../ui/Table";
import { type Answer, answerOf, answers, inFull, inShort } from "./answers";
import { nextGainUs, type Way, ways } from "./history";
import { hasStock, stockOf } from "./figures";

type Props = { job: Job; tasks: readonly Task[]; rounds: readonly Round[] };

export function TaskTable({ job, tasks, rounds }: Props): ReactNode {
  const order = useOrder("tasks", "-share");
  const waysDown = useMemo(() => ways(rounds), [rounds]);
  const totalUs = tasks.reduce((sum, task) => sum + (task.weighted_latency_us ?? 0), 0);
  const columns = taskColumns(job, totalUs, waysDown).filter(({ key }) => isTold(key, job, tasks, rounds.length));
  return (
    <Table
      label="Tasks"
      columns={columns}
      rows={tasks}
      rowKey={(task) => String(task.index)}
      {...order}
    />
  );
}

/** A job that ended has no next round, one that was asked for no trial had none, and few have stock's logs beside them. */
function isTold(key: string, job: Job, tasks: readonly Task[], rounds: number): boolean {
  if (key === "stock") return hasStock(tasks);
  if (key === "answer") return answers(job).length > 0;
  if (key === "way") return !isFinal(job) || rounds > 0;
  return key !== "next" || !isFinal(job);
}

function taskColumns(job: Job, totalUs: number, waysDown: ReadonlyMap<number, Way>): Column<Task>[] {
  const share = (task: Task): number | null =>
    task.weighted_latency_us === null || totalUs === 0 ? null : task.weighted_latency_us / totalUs;
  const numeric = true;
  return [
    { key: "index", title: "ID", width: 5, numeric, value: (task) => task.index, cell: (task) => task.index },
    {
      key: "name",
      title: "Task",
      width: 24,
      value: (task) => task.name,
      cell: (task) => <Goto to={["jobs", job.id, "tasks", String(task.index)]} name={task.name} />,
    },
    { key: "family", title: "Family", help: "With whom it shares a cost model", width: 11, value: (task) => task.family, cell: (task) => <span title={`${task.family}: ${task.family_why}`}>{shortFamily(task.family)}</span> },
    { key: "flops", title: "Work", width: 12, numeric, value: (task) => task.flops, cell: (task) => flops(task.flops) },
    { key: "weight", title: "Weight", help: "How often the model calls it", width: 8, numeric, value: (task) => task.weight, cell: (task) => task.weight },
    { key: "gflops", title: "GFLOPS", width: 8, numeric, value: (task) => task.gflops, cell: (task) => (task.gflops === null ? "–" : digits(task.gflops)) },
    { key: "latency", title: "Latency", width: 9, numeric, value: (task) => task.latency_us, cell: (task) => latency(task.latency_us) },
    { key: "stock", title: "Stock", help: "The least that imported logs of stock's tuner tell, on a host that they do not name", width: 9, numeric, value: (task) => task.stock_us, cell: (task) => <span title={stockOf(task)?.note}>{latency(task.stock_us)}</span> },
    { key: "share", title: "Share", help: "Of the sum over tasks, weighted", width: 8, numeric, value: share, cell: (task) => percent(share(task)) },
    { key: "answer", title: "Answered by", help: "What its schedule rests on, and how sure that is", width: 14, value: (task) => answerWords(job, task, inShort), cell: (task) => <span title={answerWords(job, task, inFull)}>{answerWords(job, task, inShort) ?? "–"}</span> },
    { key: "way", title: "Best", help: "The best so far, round by round", width: 9, cell: (task) => <Sparkline values={waysDown.get(task.index)?.best ?? []} label={`Best of ${task.name}, round by round`} /> },
    {
      key: "next",
      title: "Next gain",
      help: "What the newest forecast expected of a round, times the weight; never more than the task takes",
      width: 10,
      numeric,
      value: (task) => nextGainUs(task, waysDown.get(task.index)),
      cell: (task) => latency(nextGainUs(task, waysDown.get(task.index))),
    },
    {
      key: "trials",
      title: "Trials",
      width: 9,
      numeric,
      value: (task) => task.trials,
      cell: (task) => (
        <>
          {count(task.trials)}
          {task.failures > 0 && <span className="bad" title={`${task.failures} failed`}> ✕{task.failures}</span>}
        </>
      ),
    },
    { key: "state", title: "State", width: 12, value: (task) => task.state, cell: (task) => <span title={task.reason}><StateMark state={isUntimed(task) ? "not timed" : task.state} /></span> },
  ];
}

function answerWords(job: Job, task: Task, words: (answer: Answer) => string): string | undefined {
  const answer = answerOf(job, task);
  return answer === null ? undefined : words(answer);
}

/** The job is over, and nobody ever measured it. */
const isUntimed = (task: Task): boolean => task.state === "done" && task.latency_us === null;

/** Without the name of the grouping in front. */
function shortFamily(family: string): string {
  return family.slice(family.indexOf(":") + 1) || family;
}
