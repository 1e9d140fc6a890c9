/** Asks for an API key, once the server wants one. */
import { useState, type FormEvent, type ReactNode } from "react";
import { setKey } from "./api/client";
import { Dialog } from "./ui/parts";

export function KeyDialog({ onDone, onClose }: { onDone: () => void; onClose: () => void }): ReactNode {
  const [key, setText] = useState("");
  const save = (event: FormEvent): void => {
    event.preventDefault();
    setKey(key.trim());
    onDone();
  };
  return (
    <Dialog title="An API key is needed" onClose={onClose}>
      <form onSubmit={save} className="stack">
        <label>
          API key
          <input type="password" autoComplete="current-password" required value={key} onChange={(e) => setText(e.target.value)} />
        </label>
        <p className="note">It is kept in this tab until you close it, and sent to this server only.</p>
        <div className="buttons">
          <button type="submit" className="primary">
            Use this key
          </button>
        </div>
      </form>
    </Dialog>
  );
}
