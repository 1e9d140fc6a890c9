/** API keys: whose they are, what they open, and for how long. */
import { type ReactNode, useMemo, useState } from "react";
import { get } from "../api/client";
import { useResource } from "../api/resource";
import { isAdmin, useSession } from "../api/session";
import type { ApiKey, List, MadeKey } from "../api/types";
import { plural } from "../format";
import { Copy, Dialog, Press, When } from "../ui/parts";
import { Empty, Shown } from "../ui/states";
import { type Column, Table } from "../ui/Table";
import { useTitle } from "../route";
import { type Change, ChangeDialog, MakeDialog } from "./dialogs";
import { inOrder, isOver, stateOf } from "./state";

const REFRESH_SEC = 15;

export function KeysPage(): ReactNode {
  useTitle("Keys");
  const session = useSession();
  const keys = useResource<List<ApiKey>>("keys", (signal) => get("keys", {}, signal), REFRESH_SEC);
  const [making, setMaking] = useState(false);
  const [change, setChange] = useState<Change | null>(null);
  const [made, setMade] = useState<MadeKey | null>(null);
  const show = (key: MadeKey | null): void => {
    setMaking(false);
    setChange(null);
    setMade(key);
    if (key === null) keys.refresh();
  };
  return (
    <>
      <div className="title-row">
        <h1>Keys</h1>
        {isAdmin(session.data) && <Press words="Make a key …" kind="primary" onPress={() => setMaking(true)} />}
      </div>
      <Shown of={keys} what="the keys" none={<NoKeys needed={session.data?.requires_key ?? true} />}>
        {({ items }) => <Keys keys={items} mayRotate={isAdmin(session.data)} onChange={setChange} />}
      </Shown>
      {making && <MakeDialog first={session.data?.requires_key === false} onMade={show} onClose={() => setMaking(false)} />}
      {change && <ChangeDialog change={change} onDone={show} onClose={() => setChange(null)} />}
      {made && <MadeDialog made={made} onClose={() => show(null)} />}
    </>
  );
}

function NoKeys({ needed }: { needed: boolean }): ReactNode {
  return needed ? (
    <Empty title="No key of yours is stored here">
      You are signed in with a key of the coordinator's environment (<code>MALLORN_API_KEYS</code>).
    </Empty>
  ) : (
    <Empty title="No keys yet">The user who runs this service may do all. Once there is a key, nobody comes in without one.</Empty>
  );
}

type KeysProps = { keys: readonly ApiKey[]; mayRotate: boolean; onChange: (change: Change) => void };

function Keys({ keys, mayRotate, onChange }: KeysProps): ReactNode {
  const rows = useMemo(() => inOrder(keys), [keys]);
  return (
    <>
      <p className="note">
        {plural(keys.length, "key")}, {keys.filter((key) => !isOver(key)).length} of them good. What a key opens belongs to its owner, not to the key.
      </p>
      <Table label="Keys" columns={columns(mayRotate, onChange)} rows={rows} rowKey={(key) => key.id} rowHeight={54} cards rowClass={(key) => (isOver(key) ? "away" : "")} />
    </>
  );
}

function columns(mayRotate: boolean, onChange: (change: Change) => void): Column<ApiKey>[] {
  return [
    { key: "id", title: "Key", width: 10, value: (key) => key.id, cell: (key) => <code>{key.id}</code> },
    { key: "owner", title: "Owner", width: 14, value: (key) => key.owner, cell: (key) => key.owner },
    { key: "name", title: "For", width: 16, value: (key) => key.name, cell: (key) => key.name },
    { key: "may", title: "May", width: 14, value: (key) => key.scopes.join(), cell: (key) => key.scopes.join(", ") },
    { key: "state", title: "State", width: 12, value: (key) => stateOf(key), cell: (key) => <span className={isOver(key) ? "bad" : "good"}>{stateOf(key)}</span> },
    { key: "used", title: "Used", width: 12, value: (key) => key.last_used_at, cell: (key) => (key.last_used_at == null ? "never" : <When sec={key.last_used_at} />) },
    { key: "made", title: "Made", width: 12, value: (key) => key.created_at, cell: (key) => <When sec={key.created_at} /> },
    {
      key: "change",
      title: "",
      width: 14,
      value: () => null,
      cell: (key) => (
        <span className="buttons">
          {mayRotate && !isOver(key) && (
            <Press words="Rotate" kind="small" label={`Rotate ${key.name}`} onPress={() => onChange({ key, what: "rotate" })} />
          )}
          {key.revoked_at == null && (
            <Press words="Revoke" kind="small" label={`Revoke ${key.name}`} onPress={() => onChange({ key, what: "revoke" })} />
          )}
        </span>
      ),
    },
  ];
}

function MadeDialog({ made, onClose }: { made: MadeKey; onClose: () => void }): ReactNode {
  return (
    <Dialog title={`The key ${made.name}, of ${made.owner}`} onClose={onClose}>
      <div className="stack">
        <p>
          <Copy text={made.key} label="the key" />
        </p>
        <p className="note">It is shown now and never again; only its SHA-256 is kept. May {made.scopes.join(", ")}.</p>
        <div className="buttons">
          <Press words="I have it" kind="primary" onPress={onClose} />
        </div>
      </div>
    </Dialog>
  );
}
