/** What is done when it is asked for: whether it runs, and why it failed. */
import { useState } from "react";
import { apiError, type ApiError } from "./client";

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
