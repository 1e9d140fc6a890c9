/** What can be done with a job now: pause, resume, more trials, cancel, download. */
import { useState, type FormEvent, type ReactNode } from "react";
import { useAct } from "../api/act";
import { post } from "../api/client";
import type { Job, Round, Task } from "../api/types";
import { RemoveDialog, type Removal } from "../jobs/RemoveDialog";
import { go } from "../route";
import { CancelDialog } from "../jobs/CancelDialog";
import { canPause, canResume, isAuto, isFinal } from "../jobs/standing";
import { Buttons, Dialog } from "../ui/parts";
import { Failed } from "../ui/states";
import { saveReport, saveSchedules } from "./download";

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
        {canPause(job) && (
          <button type="button" disabled={busy} onClick={() => void act(() => post(`jobs/${job.id}/pause`))}>
            Pause
          </button>
        )}
        {job.state === "paused" && (
          <button type="button" className="primary" disabled={busy} onClick={() => void act(() => post(`jobs/${job.id}/resume`))}>
            Resume
          </button>
        )}
        {canResume(job) && (
          <button type="button" disabled={busy} onClick={() => setAsking("more")}>
            Add trials …
          </button>
        )}
        <button type="button" disabled={busy || !job.exported} title={noDownload(job)} onClick={() => void act(() => saveSchedules(job))}>
          Download schedules
        </button>
        <button type="button" disabled={busy} onClick={() => saveReport(job, tasks, rounds)}>
          Download report (JSON)
        </button>
        {isFinal(job) && (
          <>
            <button type="button" disabled={busy} onClick={onAgain}>
              Tune again …
            </button>
            {job.archived ? (
              <button type="button" disabled={busy} onClick={() => void act(() => post(`jobs/${job.id}/unarchive`))}>
                Take out of the archive
              </button>
            ) : (
              <button type="button" disabled={busy} onClick={() => setAsking("archive")}>
                Archive …
              </button>
            )}
            <button type="button" className="danger" disabled={busy} onClick={() => setAsking("delete")}>
              Delete …
            </button>
          </>
        )}
        {!isFinal(job) && (
          <button type="button" className="danger" disabled={busy} onClick={() => setAsking("cancel")}>
            Cancel …
          </button>
        )}
      </div>
      {error && <Failed error={error} />}
      {asking === "cancel" && <CancelDialog jobs={[job]} onClose={close} />}
      {(asking === "archive" || asking === "delete") && (
        <RemoveDialog
          job={job}
          how={asking}
          onClose={(removed) => {
            if (removed) go(["jobs"]);
            else setAsking(null);
          }}
        />
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
        <label>
          Trials on top of {job.trials ?? job.progress.trials}
          <input type="number" min={1} required disabled={auto} value={trials} onChange={(event) => setTrials(event.target.value)} />
        </label>
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

/** Why there is nothing to download; nothing where there is. */
function noDownload(job: Job): string | undefined {
  if (job.exported) return undefined;
  return job.export_deleted_at == null ? "There are schedules once the job is done" : "The exported files were deleted; measurements and schedules are still there";
}
