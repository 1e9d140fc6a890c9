/** What stands above a job's numbers: how well it did, why it failed, or what it waits for. */
import type { ReactNode } from "react";
import type { Job } from "../api/types";
import { level } from "../jobs/standing";
import { formatValue } from "../jobs/options";
import { Copy, Press } from "../ui/parts";
import { type Advice, adviceOf, commandIn, obstacle, remarks } from "./advice";
import { reaching } from "./commands";

/** How the result is to be read, and what to type next. */
export function VerdictCard({ job }: { job: Job }): ReactNode {
  if (job.state !== "done" || !job.verdict) return null;
  const { summary, next_command } = job.verdict;
  return (
    <div className={`card card-${level(job)}`} role="group" aria-label="Verdict">
      <strong>{summary}</strong>
      {next_command && <Copy text={reaching(next_command)} />}
    </div>
  );
}

export function FailedCard({ job, onAgain }: { job: Job; onAgain: () => void }): ReactNode {
  const advice = adviceOf(job);
  const shapes = formatValue(job.suggest?.input_shapes);
  return (
    <section className="card card-poor" aria-labelledby="why">
      <h2 id="why">It failed</h2>
      <strong className="pre">{advice.what || "No reason was recorded."}</strong>
      <Help {...advice} />
      <div className="buttons">
        <Press words={shapes ? `Try again with ${shapes} …` : "Try again with other options …"} kind="primary" onPress={onAgain} />
      </div>
    </section>
  );
}

export function Obstacle({ job }: { job: Job }): ReactNode {
  const advice = obstacle(job, Date.now() / 1000);
  if (advice === null) return null;
  return (
    <div className="card card-fair" role="status" aria-label="What it waits for">
      <strong className="pre">{advice.what}</strong>
      <Help {...advice} />
    </div>
  );
}

function Help({ help, command }: Advice): ReactNode {
  const rest = command && help.startsWith(command) ? help.slice(command.length).trim() : help;
  return (
    <>
      {rest && <span className="pre">{rest}</span>}
      {command && <Copy text={reaching(command)} />}
    </>
  );
}

/** Warnings, what the finish left out, and how quiet the machine was. */
export function Remarks({ job }: { job: Job }): ReactNode {
  const found = remarks(job);
  if (found.length === 0) return null;
  return (
    <section className="card card-fair" aria-labelledby="remarks">
      <h2 id="remarks">To be known</h2>
      <ul>
        {found.map(({ what, hint }) => (
          <li key={what}>
            <span className="pre">{what}</span>
            {hint && (commandIn(hint) ? <Copy text={reaching(commandIn(hint))} /> : <span className="note">{hint}</span>)}
          </li>
        ))}
      </ul>
    </section>
  );
}
