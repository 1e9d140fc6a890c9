/** Takes a job that has ended out of the list, or deletes it, after a question. */
import { useState, type ReactNode } from "react";
import { ApiError, ask, post } from "../api/client";
import type { Job } from "../api/types";
import { Dialog } from "../ui/parts";
import { Failed } from "../ui/states";

export type Removal = "archive" | "delete";

const WORDS: { readonly [removal in Removal]: { title: string; note: string; act: string } } = {
  archive: { title: "Archive", note: "It leaves the list, and all of it stays: choose the state “archived” there to see it again.", act: "Archive it" },
  delete: { title: "Delete", note: "Its log and its exported files go, for good. What it measured stays in the dataset, and so do its best schedules.", act: "Delete it" },
};

export function RemoveDialog({ job, how, onClose }: { job: Job; how: Removal; onClose: (removed: boolean) => void }): ReactNode {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const { title, note, act } = WORDS[how];
  const remove = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await (how === "delete" ? ask(`jobs/${job.id}`, {}, { method: "DELETE" }) : post(`jobs/${job.id}/archive`));
      onClose(true);
    } catch (reason) {
      setError(reason instanceof ApiError ? reason : new ApiError(0, String(reason), ""));
      setBusy(false);
    }
  };
  return (
    <Dialog title={`${title} ${job.name}?`} onClose={() => onClose(false)}>
      <div className="stack">
        <p className="note">{note}</p>
        {error && <Failed error={error} />}
        <div className="buttons">
          <button type="button" onClick={() => onClose(false)}>
            Keep it
          </button>
          <button type="button" className={how === "delete" ? "danger" : "primary"} disabled={busy} onClick={() => void remove()}>
            {act}
          </button>
        </div>
      </div>
    </Dialog>
  );
}
