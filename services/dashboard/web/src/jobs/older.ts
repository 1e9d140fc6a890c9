/** Pages of jobs behind the newest, loaded when they are asked for. */
import { useState } from "react";
import { apiError, type ApiError, get } from "../api/client";
import type { Job, Page } from "../api/types";

type Older = { jobs: Job[]; more: boolean; busy: boolean; error: ApiError | null; load: () => void };

const NONE: Job[] = [];

export function useOlderJobs(start: string | null, archived: boolean): Older {
  const [known, setKnown] = useState<Page<Job> | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const cursor = known === null ? start : known.next_cursor;

  const load = (): void => {
    setBusy(true);
    get<Page<Job>>("jobs", { limit: 1000, cursor, archived: archived || null })
      .then((page) => {
        setKnown({ items: [...(known?.items ?? []), ...page.items], next_cursor: page.next_cursor });
        setError(null);
      })
      .catch((reason: unknown) => setError(apiError(reason)))
      .finally(() => setBusy(false));
  };
  return { jobs: known?.items ?? NONE, more: cursor !== null, busy, error, load };
}
