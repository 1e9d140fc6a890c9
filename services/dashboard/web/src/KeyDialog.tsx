/** Signs this browser in with an API key, once the server wants one. */
import { type FormEvent, type ReactNode, useState } from "react";
import { useAct } from "./api/resource";
import { address, newSecret } from "./api/client";
import { signIn, useSession } from "./api/session";
import { TextField } from "./ui/fields";
import { Dialog } from "./ui/parts";

export function KeyDialog({ onDone, onClose }: { onDone: () => void; onClose: () => void }): ReactNode {
  const { data: session } = useSession();
  const [key, setText] = useState("");
  const { busy, error, act } = useAct();
  const save = async (): Promise<void> => {
    await signIn(key.trim());
    onDone();
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    void act(save);
  };
  return (
    <Dialog title="An API key is needed" onClose={onClose}>
      {session?.refusal && (
        <p role="alert" className="bad">
          {session.refusal}
        </p>
      )}
      {session?.provider && (
        <p className="buttons">
          <button type="button" className="primary" onClick={() => location.assign(address("session/oidc", { page: newSecret(".") }))}>
            Sign in with {session.provider}
          </button>
        </p>
      )}
      <form onSubmit={submit} className="stack">
        <TextField label="API key" type="password" autoComplete="current-password" required aria-invalid={error !== null} aria-describedby="key-error" value={key} onText={setText} />
        <p id="key-error" role="alert" className="bad">
          {error && (error.status === 401 ? `${error.message}. Ask whoever runs this server for one: mallorn keys create NAME` : error.message)}
        </p>
        <p className="note">It is sent to this server, once; this browser is signed in for twelve hours and keeps no key.</p>
        <div className="buttons">
          <button type="submit" className="primary" disabled={busy}>
            Sign in
          </button>
        </div>
      </form>
    </Dialog>
  );
}
