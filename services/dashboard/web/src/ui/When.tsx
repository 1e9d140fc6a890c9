/** A moment: how long ago it was, and its date. */
import type { ReactNode } from "react";
import { age, date } from "../format";

/** `agoSec` where the server tells, whose clock may differ from the reader's. */
export function When({ sec, agoSec }: { sec: number | null | undefined; agoSec?: number }): ReactNode {
  if (sec == null) return "–";
  const words = date(sec);
  return (
    <>
      {age(agoSec ?? Math.max(0, Date.now() / 1000 - sec))} ago
      <small title={words}>
        <time dateTime={new Date(sec * 1000).toISOString()}>{words}</time>
      </small>
    </>
  );
}
