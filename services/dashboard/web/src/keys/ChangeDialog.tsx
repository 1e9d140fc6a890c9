/** Replaces a key's secret, or revokes it, after a question. */
import type { ReactNode } from "react";
import { useAct } from "../api/resource";
import { ask, post } from "../api/client";
import type { ApiKey, MadeKey } from "../api/types";
import { Buttons, Dialog } from "../ui/parts";
import { Failed } from "../ui/states";

export type Change = { key: ApiKey; what: "rotate" | "revoke" };
type Props = { change: Change; onDone: (made: MadeKey | null) => void; onClose: () => void };

export function ChangeDialog({ change: { key, what }, onDone, onClose }: Props): ReactNode {
  const { busy, error, act } = useAct();
  const change = async (): Promise<void> => onDone(what === "rotate" ? await post<MadeKey>(`keys/${key.id}/rotate`) : await revoked(key));
  const title = what === "rotate" ? "Give it another secret?" : "Revoke it?";
  return (
    <Dialog title={title} onClose={onClose}>
      <div className="stack">
        <p>
          <strong>{key.name}</strong>, of {key.owner} (<code>{key.id}</code>)
        </p>
        <p className="note">
          The key as it is now opens nothing from then on, and browsers that it let in are signed out
          {what === "rotate" ? "; you are shown the new one, once." : ". Jobs, models and exports stay with the owner."}
        </p>
        {error && <Failed error={error} />}
        <Buttons leave="Leave it" act={busy ? "One moment …" : what === "rotate" ? "Rotate it" : "Revoke it"} busy={busy} onLeave={onClose} onAct={() => void act(change)} />
      </div>
    </Dialog>
  );
}

async function revoked(key: ApiKey): Promise<null> {
  await ask(`keys/${key.id}`, {}, { method: "DELETE" });
  return null;
}
