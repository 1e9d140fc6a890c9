/** Replaces a key's secret, or revokes it, after a question. */
import { useState, type ReactNode } from "react";
import { ApiError, ask, post } from "../api/client";
import type { ApiKey, MadeKey } from "../api/types";
import { Dialog } from "../ui/parts";
import { Failed } from "../ui/states";

export type Change = { key: ApiKey; what: "rotate" | "revoke" };
type Props = { change: Change; onDone: (made: MadeKey | null) => void; onClose: () => void };

export function ChangeDialog({ change: { key, what }, onDone, onClose }: Props): ReactNode {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const change = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      onDone(what === "rotate" ? await post<MadeKey>(`keys/${key.id}/rotate`) : await revoked(key));
    } catch (reason) {
      setError(reason instanceof ApiError ? reason : new ApiError(0, String(reason), ""));
      setBusy(false);
    }
  };
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
        <div className="buttons">
          <button type="button" onClick={onClose}>
            Leave it
          </button>
          <button type="button" className="primary" disabled={busy} onClick={() => void change()}>
            {busy ? "One moment …" : what === "rotate" ? "Rotate it" : "Revoke it"}
          </button>
        </div>
      </div>
    </Dialog>
  );
}

async function revoked(key: ApiKey): Promise<null> {
  await ask(`keys/${key.id}`, {}, { method: "DELETE" });
  return null;
}
