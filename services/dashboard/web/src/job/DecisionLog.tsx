/** Why every round was made, what was expected of it and what it brought; the newest on top. */
import { useMemo, type ReactNode } from "react";
import type { Job, Round } from "../api/types";
import { duration, percent, plural } from "../format";
import { isFinal } from "../jobs/standing";
import { Goto } from "../ui/parts";
import { Empty } from "../ui/states";
import { Table, type Column } from "../ui/Table";
import { calibration, expected, found, gain, verdict, why } from "./words";

export function DecisionLog({ job, rounds }: { job: Job; rounds: readonly Round[] }): ReactNode {
  const newest = useMemo(() => [...rounds].reverse(), [rounds]);
  if (newest.length === 0 && isFinal(job)) return <Empty title="No rounds">It ended before the planner made one, or knew all it needed.</Empty>;
  if (newest.length === 0) return <Empty title="No rounds yet">The planner makes the first ones after the import.</Empty>;
  const { judged, held } = calibration(rounds);
  return (
    <>
      <p className="note">
        {plural(rounds.length, "round")}.{" "}
        {judged > 0 && `${percent(held / judged)} of ${judged} forecasts held what was found; four in five are meant to.`}
      </p>
      <Table label="Decisions" columns={columns(job.id)} rows={newest} rowKey={(round) => String(round.id)} rowHeight={62} />
    </>
  );
}

function columns(jobId: string): Column<Round>[] {
  return [
    { key: "round", title: "Round", width: 6, numeric: true, cell: (round) => round.index },
    {
      key: "task",
      title: "Task",
      width: 20,
      cell: (round) => (
        <>
          <Goto to={["jobs", jobId, "tasks", String(round.task_index)]} name={round.task_name} />
          <small>
            {round.trials === round.size ? plural(round.size, "trial") : `${round.trials} of ${plural(round.size, "trial")}`}
            {round.failures > 0 && <span className="bad"> · {round.failures} failed</span>} · {round.searcher}
          </small>
        </>
      ),
    },
    {
      key: "why",
      title: "Why",
      width: 31,
      cell: (round) => (
        <span className="clamp" title={`${why(round)} (${round.policy})`}>
          {why(round) || "–"}
        </span>
      ),
    },
    { key: "expected", title: "Expected", help: "The interval that holds four in five", width: 18, numeric: true, cell: (round) => expected(round) || "–" },
    {
      key: "found",
      title: "Found",
      width: 14,
      numeric: true,
      cell: (round) => (
        <>
          {found(round)}
          <small>{verdict(round)}</small>
        </>
      ),
    },
    { key: "gain", title: "Gain", help: "What it took off the weighted total", width: 9, numeric: true, cell: (round) => <span className={(round.gain_us ?? 0) > 0 ? "good" : ""}>{gain(round)}</span> },
    { key: "time", title: "Took", width: 7, numeric: true, cell: (round) => (round.seconds === null ? "" : duration(round.seconds)) },
  ];
}
