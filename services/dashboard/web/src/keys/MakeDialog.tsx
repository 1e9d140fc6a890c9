/** Asks for what a new key is to open. */
import { useState, type FormEvent, type ReactNode } from "react";
import { ApiError, post } from "../api/client";
import type { MadeKey } from "../api/types";
import { Dialog } from "../ui/parts";
import { Failed } from "../ui/states";
import { LASTING, SCOPES, wanted } from "./state";

const USUAL: readonly string[] = ["read", "submit"];

export function MakeDialog({ first, onMade, onClose }: { first: boolean; onMade: (key: MadeKey) => void; onClose: () => void }): ReactNode {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const make = async (event: FormEvent<HTMLFormElement>): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setBusy(true);
    setError(null);
    try {
      onMade(await post<MadeKey>("keys", wanted(form)));
    } catch (reason) {
      setError(reason instanceof ApiError ? reason : new ApiError(0, String(reason), ""));
      setBusy(false);
    }
  };
  return (
    <Dialog title="Make a key" onClose={onClose}>
      <form onSubmit={(event) => void make(event)} className="stack">
        <label>
          For
          <input name="name" required maxLength={200} placeholder="ci, or who has it" />
        </label>
        <label>
          Owner
          <input name="owner" maxLength={200} placeholder="yourself" />
        </label>
        <fieldset>
          <legend>It may</legend>
          {Object.entries(SCOPES).map(([scope, words]) => (
            <label key={scope} className="check">
              <input type="checkbox" name="scope" value={scope} defaultChecked={first ? scope === "admin" : USUAL.includes(scope)} /> {scope} <small>{words}</small>
            </label>
          ))}
        </fieldset>
        <label>
          For how long
          <select name="days" defaultValue="90">
            {Object.entries(LASTING).map(([days, words]) => (
              <option key={days} value={days}>
                {words}
              </option>
            ))}
          </select>
        </label>
        {first && <p className="note">It is the first: from then on nobody comes in without a key, and this page asks for it.</p>}
        {error && <Failed error={error} />}
        <div className="buttons">
          <button type="button" onClick={onClose}>
            Leave it
          </button>
          <button type="submit" className="primary" disabled={busy}>
            {busy ? "One moment …" : "Make it"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
