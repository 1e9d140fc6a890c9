/** Takes a job that has ended out of the list, or deletes it, after a question. */
import type { ReactNode } from "react";
import { useAct } from "../api/resource";
import { ask, post } from "../api/client";
import type { Job } from "../api/types";
import { Buttons, Dialog } from "../ui/parts";
import { Failed } from "../ui/states";

export type Removal = "archive" | "delete";

const WORDS: { readonly [removal in Removal]: { title: string; note: string; act: string } } = {
  archive: { title: "Archive", note: "It leaves the list, and all of it stays: choose the state “archived” there to see it again.", act: "Archive it" },
  delete: { title: "Delete", note: "Its log and its exported files go, for good. What it measured stays in the dataset, and so do its best schedules.", act: "Delete it" },
};

export function RemoveDialog({ job, how, onClose }: { job: Job; how: Removal; onClose: (removed: boolean) => void }): ReactNode {
  const { busy, error, act } = useAct();
  const { title, note, act: words } = WORDS[how];
  const remove = async (): Promise<void> => {
    await (how === "delete" ? ask(`jobs/${job.id}`, {}, { method: "DELETE" }) : post(`jobs/${job.id}/archive`));
    onClose(true);
  };
  return (
    <Dialog title={`${title} ${job.name}?`} onClose={() => onClose(false)}>
      <div className="stack">
        <p className="note">{note}</p>
        {error && <Failed error={error} />}
        <Buttons leave="Keep it" act={words} danger={how === "delete"} busy={busy} onLeave={() => onClose(false)} onAct={() => void act(remove)} />
      </div>
    </Dialog>
  );
}
