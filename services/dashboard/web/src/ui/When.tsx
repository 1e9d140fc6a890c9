/** A moment: how long ago it was, and its date. */
import type { ReactNode } from "react";
import { date, duration } from "../format";

export function When({ sec }: { sec: number | null | undefined }): ReactNode {
  if (sec == null) return "–";
  return (
    <>
      {duration(Math.max(0, Date.now() / 1000 - sec))} ago
      <small>
        <time dateTime={new Date(sec * 1000).toISOString()}>{date(sec)}</time>
      </small>
    </>
  );
}
