/** A command with a button that copies it. */
import { useRef, useState, type ReactNode } from "react";

export function Copy({ text, label = text }: { text: string; label?: string }): ReactNode {
  const code = useRef<HTMLElement>(null);
  const [done, setDone] = useState("");
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setDone("copied");
    } catch {
      // Without https there is no clipboard, and a browser may refuse it.
      if (code.current) getSelection()?.selectAllChildren(code.current);
      setDone("selected: press Ctrl+C");
    }
  };
  return (
    <span className="copy">
      <code ref={code} tabIndex={0}>
        {text}
      </code>
      <button type="button" className="small" aria-label={`Copy ${label}`} onClick={() => void copy()}>
        Copy
      </button>
      <span role="status">{done}</span>
    </span>
  );
}
