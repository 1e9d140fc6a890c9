/** Candidates that failed, by what became of them; the texts come when they are opened. */
import { useState, type ReactNode } from "react";
import { get } from "../api/client";
import { useResource } from "../api/resource";
import type { Job, MeasuredRecord, Page } from "../api/types";
import { clock, count, plural } from "../format";
import { Section } from "../ui/parts";
import { Shown } from "../ui/states";
import { outcomeOf, outcomeWords } from "./words";

const TEXTS = 20;

export function Failures({ job }: { job: Job }): ReactNode {
  const left = job.progress.unbuilt_candidates;
  const kinds = Object.entries(job.progress.failures).filter(([, count]) => count > 0);
  return (
    <Section id="failures" title="Failures">
      {kinds.length === 0 ? (
        <p className="note">No candidate has failed.</p>
      ) : (
        kinds.map(([outcome, count]) => <Kind key={outcome} jobId={job.id} outcome={outcome} count={count} />)
      )}
      {left > 0 && <p className="note">{count(left)} not built: their unrolled code is too large.</p>}
    </Section>
  );
}

function Kind({ jobId, outcome, count }: { jobId: string; outcome: string; count: number }): ReactNode {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {plural(count, "candidate")} {outcomeWords(outcome)}
      </summary>
      {open && <Texts jobId={jobId} outcome={outcome} count={count} />}
    </details>
  );
}

function Texts({ jobId, outcome, count }: { jobId: string; outcome: string; count: number }): ReactNode {
  const query = { job: jobId, outcome, limit: TEXTS };
  const records = useResource<Page<MeasuredRecord>>(`${jobId}/${outcome}/${count}`, (signal) => get("records", query, signal), null);
  return (
    <Shown of={records} what="their texts">
      {({ items }) => (
        <>
          {count > items.length && <p className="note">The newest {items.length}:</p>}
          <ul className="texts">
            {items.filter((record) => outcomeOf(record) === outcome).map((record) => (
              <li key={record.id}>
                <span>
                  {record.workload_name} <small>{clock(record.created_at)}{record.device && ` on ${record.device}`}</small>
                </span>
                <pre tabIndex={0}>{record.error || "no text"}</pre>
              </li>
            ))}
          </ul>
        </>
      )}
    </Shown>
  );
}
