/** News of a job as they happen; where the stream breaks it is resumed behind the last event. */
import { useEffect, useRef, useState } from "react";
import { ask } from "./client";

export type Liveness = "connecting" | "live" | "polling" | "ended";
/** Refreshes for many events at once: no more than one in this time. */
const GATHER_MS = 1000;
const POLL_MS = 4000;
const LONGEST_WAIT_MS = 10_000;
/** The server sends something every 15 seconds: a stream that is silent for longer is held back on its way. */
const SILENT_MS = 20_000;

/** Calls `onNews` when something happened, or every few seconds while there is no stream. */
export function useLive(jobId: string, active: boolean, onNews: () => void): Liveness {
  const [mode, setMode] = useState<Liveness>("connecting");
  const cursor = useRef({ jobId, seen: 0 });
  const news = useRef(onNews);
  news.current = onNews;

  useEffect(() => {
    if (!active) {
      setMode("ended");
      return;
    }
    if (cursor.current.jobId !== jobId) cursor.current = { jobId, seen: 0 };
    const stop = new AbortController();
    const gather = gathered(() => news.current(), GATHER_MS);
    let heard = Date.now();
    const watch = setInterval(() => {
      if (Date.now() - heard < SILENT_MS) return;
      setMode("polling");
      gather.now();
    }, POLL_MS);
    void (async () => {
      for (let failures = 0; !stop.signal.aborted; ) {
        const sign = (): void => {
          failures = 0;
          heard = Date.now();
          setMode("live");
        };
        try {
          await follow(jobId, cursor.current.seen, { onEvents: take, onSign: sign, signal: stop.signal });
          gather.now();
          await sleep(POLL_MS, stop.signal); // the job ended, or the server restarts: the job's state tells
        } catch {
          if (stop.signal.aborted) return;
          setMode("polling");
          gather.now();
          await sleep(retryAfterMs(failures++), stop.signal);
        }
      }
    })();
    function take(events: number[]): void {
      cursor.current.seen = Math.max(cursor.current.seen, ...events);
      gather.soon();
    }
    return () => {
      stop.abort();
      clearInterval(watch);
      gather.cancel();
    };
  }, [jobId, active]);
  return mode;
}

export function retryAfterMs(failures: number): number {
  return Math.min(POLL_MS * 2 ** failures, LONGEST_WAIT_MS);
}

/** Runs an action soon after it was asked for, once for all that ask in between. */
export function gathered(action: () => void, ms: number): { soon: () => void; now: () => void; cancel: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const cancel = (): void => {
    clearTimeout(timer);
    timer = undefined;
  };
  const now = (): void => {
    cancel();
    action();
  };
  return { cancel, now, soon: () => (timer ??= setTimeout(now, ms)) };
}

/** At least half as long: pages that one restart cut off come back apart. */
function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms * (0.5 + Math.random() / 2));
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Feeds on pieces of a stream, however they are cut, and gives the numbers of whole events. */
export class EventParser {
  private rest = "";

  push(piece: string): number[] {
    const blocks = (this.rest + piece).split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.flatMap((block) => /^id: ?(\d+)$/m.exec(block)?.[1] ?? []).map(Number);
  }
}

type Follow = { onEvents: (events: number[]) => void; onSign: () => void; signal: AbortSignal };

/** Follow a job behind an event until its last, then return; throws when the stream breaks. */
export async function follow(jobId: string, after: number, { onEvents, onSign, signal }: Follow): Promise<void> {
  const answer = await ask(`jobs/${jobId}/events`, { after }, { signal });
  if (answer.body === null) throw new Error("the stream has no body");
  onSign();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onSign(); // comments between the events are signs of life too
    const events = parser.push(value);
    if (events.length > 0) onEvents(events);
  }
}
