/** What is asked for again and again, and keeps its last answer when asking fails; and what is done once. */
import { useCallback, useEffect, useRef, useState } from "react";
import { apiError, type ApiError } from "./client";

export type Resource<Answer> = {
  data: Answer | undefined;
  error: ApiError | undefined;
  refresh: () => void;
};

export type Load<Answer> = (signal: AbortSignal, last: Answer | undefined) => Promise<Answer>;

/** `key` names what is loaded: another key starts anew. Without `everySec` only `refresh` asks again. */
export function useResource<Answer>(key: string, load: Load<Answer>, everySec: number | null): Resource<Answer> {
  const [state, setState] = useState<{ key: string; data?: Answer; error?: ApiError }>({ key });
  const current = useRef({ load, last: undefined as Answer | undefined, again: () => {} });
  current.current.load = load;

  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let busy = false;
    let asked = false;
    current.current.last = undefined;

    const run = async (): Promise<void> => {
      if (busy) {
        asked = true; // one more when this one is back, however often it was asked for
        return;
      }
      busy = true;
      clearTimeout(timer);
      let failed = false;
      try {
        const data = await current.current.load(stop.signal, current.current.last);
        if (stop.signal.aborted) return;
        current.current.last = data;
        setState({ key, data });
      } catch (error) {
        if (stop.signal.aborted) return;
        failed = true;
        const known = apiError(error);
        setState((old) => (old.key === key ? { ...old, error: known } : { key, error: known }));
      } finally {
        busy = false;
      }
      const wait = pause(everySec, failed, asked);
      asked = false;
      if (wait !== null) timer = setTimeout(tick, wait);
    };
    const tick = (): void => {
      if (document.visibilityState === "hidden") timer = setTimeout(tick, 1000);
      else void run();
    };
    current.current.again = () => void run();
    void run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, everySec]);

  const refresh = useCallback(() => current.current.again(), []);
  const mine = state.key === key ? state : undefined;
  return { data: mine?.data, error: mine?.error, refresh };
}

/** Milliseconds until the next question; null: none of its own accord. */
export function pause(everySec: number | null, failed: boolean, asked: boolean): number | null {
  if (asked) return 250;
  if (failed) return 5000;
  return everySec === null ? null : everySec * 1000;
}

type Act = { busy: boolean; error: ApiError | null; act: (action: () => Promise<unknown>) => Promise<void> };

export function useAct(): Act {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const act = async (action: () => Promise<unknown>): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await action();
    } catch (reason) {
      setError(apiError(reason));
    }
    setBusy(false);
  };
  return { busy, error, act };
}
