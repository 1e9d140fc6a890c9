/** Which Mallorn this is, and where to read on. */
import { useEffect, useState, type ReactNode } from "react";

type About = { name: string; version: string };

export function Footer(): ReactNode {
  const [about, setAbout] = useState<About | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    fetch(new URL(".", document.baseURI), { headers: { Accept: "application/json" }, signal: stop.signal })
      .then((answer) => answer.json() as Promise<About>)
      .then(setAbout)
      .catch(() => setAbout(null)); // the places above say that the coordinator does not answer
    return () => stop.abort();
  }, []);
  return (
    <footer className="foot">
      <span>Mallorn {about?.version}</span>
      <a href="docs">API</a>
      <a href="api/v1/openapi.json">OpenAPI</a>
      <span>
        Docs: <code>docs/</code> beside the source, <code>mallorn --help</code>
      </span>
    </footer>
  );
}
