/** What can be done with a job now: pause, resume, more trials, cancel, download. */
import { type FormEvent, type ReactNode, useState } from "react";
import { useAct } from "../api/resource";
import { post } from "../api/client";
import type { Job, Round, Task } from "../api/types";
import { type Removal, RemoveDialog } from "../jobs/RemoveDialog";
import { go } from "../route";
import { CancelDialog } from "../jobs/CancelDialog";
import { canPause, canResume, isAuto, isFinal } from "../jobs/standing";
import { TextField } from "../ui/fields";
import { Buttons, Dialog, Press } from "../ui/parts";
import { Failed } from "../ui/states";
import { noDownload, saveExported, saveReport } from "./download";

type Props = { job: Job; rounds: readonly Round[]; tasks: readonly Task[]; onDone: () => void; onAgain: () => void };

export function Actions({ job, rounds, tasks, onDone, onAgain }: Props): ReactNode {
  const { busy, error, act: run } = useAct();
  const [asking, setAsking] = useState<"cancel" | "more" | Removal | null>(null);
  const act = async (action: () => Promise<unknown>): Promise<void> => {
    await run(action);
    onDone();
  };
  const close = (): void => {
    setAsking(null);
    onDone();
  };
  return (
    <div className="actions">
      <div className="buttons">
        {canPause(job) && <Press words="Pause" disabled={busy} onPress={() => void act(() => post(`jobs/${job.id}/pause`))} />}
        {job.state === "paused" && <Press words="Resume" kind="primary" disabled={busy} onPress={() => void act(() => post(`jobs/${job.id}/resume`))} />}
        {canResume(job) && <Press words="Add trials …" disabled={busy} onPress={() => setAsking("more")} />}
        {(["schedules", "library"] as const).map((what) => (
          <Press key={what} words={`Download ${what}`} disabled={busy || noDownload(job, what) !== undefined} title={noDownload(job, what)} onPress={() => void act(() => saveExported(job, what))} />
        ))}
        <Press words="Download report (JSON)" disabled={busy} onPress={() => saveReport(job, tasks, rounds)} />
        {isFinal(job) ? (
          <>
            <Press words="Tune again …" disabled={busy} onPress={onAgain} />
            {job.archived ? (
              <Press words="Take out of the archive" disabled={busy} onPress={() => void act(() => post(`jobs/${job.id}/unarchive`))} />
            ) : (
              <Press words="Archive …" disabled={busy} onPress={() => setAsking("archive")} />
            )}
            <Press words="Delete …" kind="danger" disabled={busy} onPress={() => setAsking("delete")} />
          </>
        ) : (
          <Press words="Cancel …" kind="danger" disabled={busy} onPress={() => setAsking("cancel")} />
        )}
      </div>
      {error && <Failed error={error} />}
      {asking === "cancel" && <CancelDialog jobs={[job]} onClose={close} />}
      {(asking === "archive" || asking === "delete") && (
        <RemoveDialog job={job} how={asking} onClose={(removed) => (removed ? go(["jobs"]) : setAsking(null))} />
      )}
      {asking === "more" && <MoreTrials job={job} act={act} onClose={close} />}
    </div>
  );
}

type MoreProps = { job: Job; act: (action: () => Promise<unknown>) => Promise<void>; onClose: () => void };

function MoreTrials({ job, act, onClose }: MoreProps): ReactNode {
  const [trials, setTrials] = useState("100");
  const [auto, setAuto] = useState(false);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    void act(() => post(`jobs/${job.id}/resume`, auto ? { auto } : { trials: Number(trials) })).then(onClose);
  };
  return (
    <Dialog title="Add trials" onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        <TextField label={`Trials on top of ${job.trials ?? job.progress.trials}`} type="number" min={1} required disabled={auto} value={trials} onText={setTrials} />
        {!isAuto(job) && (
          <label className="check">
            <input type="checkbox" checked={auto} onChange={(event) => setAuto(event.target.checked)} />
            or as many as are worth their seconds
          </label>
        )}
        <p className="note">The job goes on; nothing is measured again.</p>
        <Buttons leave="Close" act="Go on" onLeave={onClose} />
      </form>
    </Dialog>
  );
}
