/** Asks for what a new key is to open; replaces a key's secret, or revokes it, after a question. */
import type { FormEvent, ReactNode } from "react";
import { useAct } from "../api/resource";
import { ask, post } from "../api/client";
import type { ApiKey, MadeKey } from "../api/types";
import { TextField } from "../ui/fields";
import { Buttons, Dialog } from "../ui/parts";
import { Failed } from "../ui/states";
import { LASTING, SCOPES, wanted } from "./state";

const USUAL: readonly string[] = ["read", "submit"];

export function MakeDialog({ first, onMade, onClose }: { first: boolean; onMade: (key: MadeKey) => void; onClose: () => void }): ReactNode {
  const { busy, error, act } = useAct();
  const make = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    void act(async () => onMade(await post<MadeKey>("keys", wanted(form))));
  };
  return (
    <Dialog title="Make a key" onClose={onClose}>
      <form onSubmit={make} className="stack">
        <TextField label="For" name="name" required maxLength={200} placeholder="ci, or who has it" />
        <TextField label="Owner" name="owner" maxLength={200} placeholder="yourself" />
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
        <Buttons leave="Leave it" act={busy ? "One moment …" : "Make it"} busy={busy} onLeave={onClose} />
      </form>
    </Dialog>
  );
}

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
