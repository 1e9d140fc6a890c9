/** Server-sent events over fetch: EventSource cannot present a key. */
import { ask } from "./client";

export type JobEvent = { id: number; kind: string; data: unknown };

/** Feeds on pieces of a stream, however they are cut, and gives whole events. */
export class EventParser {
  private rest = "";

  push(piece: string): JobEvent[] {
    const blocks = (this.rest + piece).split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.map(parse).filter((event) => event !== null);
  }
}

function parse(block: string): JobEvent | null {
  const fields = new Map<string, string>();
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1).replace(/^ /, ""));
  }
  const data = fields.get("data");
  if (data === undefined) return null;
  return { id: Number(fields.get("id") ?? 0), kind: fields.get("event") ?? "message", data: JSON.parse(data) };
}

/** Follow a job behind an event until its last, then return; throws when the stream breaks. */
export async function follow(
  jobId: string,
  after: number,
  onEvents: (events: JobEvent[]) => void,
  onSign: () => void,
  signal: AbortSignal,
): Promise<void> {
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
