/** A file that is dragged over the page and dropped. */
import { useEffect, useState } from "react";

export function useDroppedFile(): { over: boolean; file: File | null; clear: () => void } {
  const [over, setOver] = useState(false);
  const [file, setFile] = useState<File | null>(null);
  useEffect(() => {
    const hasFile = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
    const drag = (event: DragEvent): void => {
      if (!hasFile(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent): void => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent): void => {
      if (!hasFile(event)) return;
      event.preventDefault();
      setOver(false);
      setFile(event.dataTransfer?.files[0] ?? null);
    };
    const stop = new AbortController();
    window.addEventListener("dragover", drag, { signal: stop.signal });
    window.addEventListener("dragleave", leave, { signal: stop.signal });
    window.addEventListener("drop", drop, { signal: stop.signal });
    return () => stop.abort();
  }, []);
  return { over, file, clear: () => setFile(null) };
}
