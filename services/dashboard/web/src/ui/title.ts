/** What the tab of the browser is called. */
import { useEffect } from "react";

export function useTitle(words: string): void {
  useEffect(() => {
    document.title = `${words} · Mallorn`;
  }, [words]);
}
