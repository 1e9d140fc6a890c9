/** Ends several jobs after a question; those that could not be ended say why. */
import { useState, type ReactNode } from "react";
import { post } from "../api/client";
import type { Job } from "../api/types";
import { plural } from "../format";
import { Buttons, Dialog } from "../ui/parts";

export function CancelDialog({ jobs, onClose }: { jobs: readonly Job[]; onClose: () => void }): ReactNode {
  const [asked] = useState(jobs);
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState<string[]>([]);
  const cancel = async (): Promise<void> => {
    setBusy(true);
    const answers = await Promise.allSettled(asked.map((job) => post(`jobs/${job.id}/cancel`)));
    const words = answers.flatMap((answer) => (answer.status === "rejected" ? [String((answer.reason as Error).message)] : []));
    setBusy(false);
    setRefused(words);
    if (words.length === 0) onClose();
  };
  return (
    <Dialog title={`Cancel ${plural(asked.length, "job")}?`} onClose={onClose}>
      <ul className="names">
        {asked.map((job) => (
          <li key={job.id}>
            {job.name} <small className="id">{job.id}</small>
          </li>
        ))}
      </ul>
      <p className="note">What they measured stays in the dataset; a later job of the same model starts from it.</p>
      {refused.map((words) => (
        <p key={words} className="bad" role="alert">
          {words}
        </p>
      ))}
      <Buttons leave="Keep them" act={busy ? "Cancelling …" : "Cancel them"} danger busy={busy} onLeave={onClose} onAct={() => void cancel()} />
    </Dialog>
  );
}
