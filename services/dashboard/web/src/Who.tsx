/** Who is signed in, and the way out. */
import type { ReactNode } from "react";
import { signOut, useSession } from "./api/session";

export function Who({ onOut }: { onOut: () => void }): ReactNode {
  const { data: session } = useSession();
  if (!session?.keys || !session.owner) return null;
  const out = async (): Promise<void> => {
    await signOut().catch(() => undefined); // the next question tells
    onOut();
  };
  return (
    <span className="who">
      {session.owner}{" "}
      <button type="button" className="small" onClick={() => void out()}>
        Sign out
      </button>
    </span>
  );
}
