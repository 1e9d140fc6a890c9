/** Puts another version into use after a question. */
import { useState, type ReactNode } from "react";
import { ApiError, post } from "../api/client";
import type { CostModel } from "../api/types";
import { count, target } from "../format";
import { Dialog } from "../ui/parts";
import { Failed } from "../ui/states";
import { isBack, type Line } from "./lines";

type Props = { model: CostModel; line: Line; onClose: () => void };

export function ActivateDialog({ model, line, onClose }: Props): ReactNode {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const back = isBack(model, line);
  const activate = async (): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await post(`costmodels/${model.id}/activate`);
      onClose();
    } catch (reason) {
      setError(reason instanceof ApiError ? reason : new ApiError(0, String(reason), ""));
      setBusy(false);
    }
  };
  return (
    <Dialog title={`${back ? "Go back to" : "Use"} version ${model.version}?`} onClose={onClose}>
      <div className="stack">
        <p>
          <strong>{model.full_name}</strong> for {target(model.target)}, trained for {count(model.rows)} measurements.
        </p>
        <p className="note">
          New rounds of every job are proposed by it, and training goes on from it. Rounds that have begun keep the version they began with
          {line.active === null ? "." : `; version ${line.active.version} stays, and can be taken into use again.`}
        </p>
        {error && <Failed error={error} />}
        <div className="buttons">
          <button type="button" onClick={onClose}>
            Leave it
          </button>
          <button type="button" className="primary" disabled={busy} onClick={() => void activate()}>
            {busy ? "One moment …" : back ? "Go back" : "Use it"}
          </button>
        </div>
      </div>
    </Dialog>
  );
}
