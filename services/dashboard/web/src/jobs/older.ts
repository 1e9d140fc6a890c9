/** Pages of jobs behind the newest, loaded when they are asked for. */
import { useState } from "react";
import { type ApiError, get, type Query } from "../api/client";
import { useAct } from "../api/resource";
import type { Job, Page } from "../api/types";

type Older = { jobs: Job[]; more: boolean; busy: boolean; error: ApiError | null; load: () => void };

const NONE: Job[] = [];

export function useOlderJobs(start: string | null, query: Query): Older {
  const [loaded, setLoaded] = useState<{ key: string; page: Page<Job> } | null>(null);
  const key = JSON.stringify(query);
  const known = loaded?.key === key ? loaded.page : null;
  const { busy, error, act } = useAct();
  const cursor = known === null ? start : known.next_cursor;
  const more = async (): Promise<void> => {
    const page = await get<Page<Job>>("jobs", { ...query, limit: 1000, cursor });
    setLoaded({ key, page: { items: [...(known?.items ?? []), ...page.items], next_cursor: page.next_cursor } });
  };
  return { jobs: known?.items ?? NONE, more: cursor !== null, busy, error, load: () => void act(more) };
}
