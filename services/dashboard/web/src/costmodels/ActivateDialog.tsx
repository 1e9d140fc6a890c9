/** Puts another version into use after a question. */
import type { ReactNode } from "react";
import { useAct } from "../api/resource";
import { post } from "../api/client";
import type { CostModel } from "../api/types";
import { count, target } from "../format";
import { Buttons, Dialog } from "../ui/parts";
import { Failed } from "../ui/states";
import { isBack, type Line } from "./lines";

type Props = { model: CostModel; line: Line; onClose: () => void };

export function ActivateDialog({ model, line, onClose }: Props): ReactNode {
  const { busy, error, act } = useAct();
  const back = isBack(model, line);
  const activate = async (): Promise<void> => {
    await post(`costmodels/${model.id}/activate`);
    onClose();
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
        <Buttons leave="Leave it" act={busy ? "One moment …" : back ? "Go back" : "Use it"} busy={busy} onLeave={onClose} onAct={() => void act(activate)} />
      </div>
    </Dialog>
  );
}
