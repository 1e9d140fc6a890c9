/** How a job stands, in a few large numbers. */
import type { ReactNode } from "react";
import type { Job, OptionName } from "../api/types";
import { clock, count, duration, latency, percent, target, versus } from "../format";
import { bestUs, engines, isAuto, isFinal, secondsLeft, speedUp, spentOf } from "../jobs/standing";
import { Rivalry } from "../jobs/Rivalry";
import { Fact, Facts, Meter } from "../ui/parts";
import { rests } from "./answers";
import { busy, earned, headroom, idle } from "./figures";
import { peakShare } from "./advice";

export function Summary({ job }: { job: Job }): ReactNode {
  const { untuned, onnxruntime, tuned } = engines(job);
  const { trials, tasks, tasks_measured, open_candidates } = job.progress;
  const faster = speedUp(job);
  const endSec = job.finished_at ?? Date.now() / 1000;
  return (
    <Facts>
      <Fact name="Latency" note={tuned === undefined ? "sum over the tasks" : "of the whole model, measured"}>
        {latency(bestUs(job))}
      </Fact>
      {untuned !== undefined && (
        <Fact name="Untuned" note={onnxruntime === undefined && faster !== null && `${versus(faster)} now`}>
          {latency(untuned)}
        </Fact>
      )}
      {onnxruntime !== undefined && (
        <Fact name="onnxruntime" note={<Rivalry job={job} />}>
          {latency(onnxruntime)}
        </Fact>
      )}
      {peakShare(job) !== null && <Fact name="Of what this machine computes">{percent(peakShare(job))}</Fact>}
      {[...rests(job), ...earned(job), ...busy(job), ...idle(job), ...headroom(job)].map(({ name, value, note }) => (
        <Fact key={name} name={name} note={note}>
          {value}
        </Fact>
      ))}
      <Fact name="Trials" note={budget(job)}>
        {count(trials)}{" "}
        <small>{[!!job.trials && `of ${count(job.trials)}`, open_candidates > 0 && `${open_candidates} under way`].filter(Boolean).join(", ")}</small>
      </Fact>
      <Fact name="Tasks timed">
        {count(tasks_measured)} <small>of {count(tasks)}</small>
      </Fact>
      <Fact name={isFinal(job) ? "Took" : "Time left"} note={isFinal(job) ? `since ${clock(job.created_at)}` : `${duration(endSec - job.created_at)} since its submit`}>
        {duration(isFinal(job) ? endSec - job.created_at : secondsLeft(job, endSec))}
      </Fact>
      <Fact name="Target" note={`search ${option(job, "search")}, policy ${option(job, "policy")}`}>
        <span className="target" title={job.target}>
          {target(job.target)}
        </span>
      </Fact>
    </Facts>
  );
}

function budget(job: Job): ReactNode {
  if (isAuto(job)) return "as many as are worth it";
  if (job.trials === null) return "no limit";
  return job.trials === 0 ? "none was asked for" : <Meter value={job.progress.trials} of={job.trials} label={`${spentOf(job)} trials`} />;
}

const option = (job: Job, name: OptionName): string => String(job.options[name] ?? "–");
