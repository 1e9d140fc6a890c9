/** The frame around every page: its name, the ways to the others, who is signed in, and the question for a key. */
import { type ReactNode, useEffect, useState } from "react";
import { KEY_NEEDED } from "./api/client";
import { ComparePage } from "./compare/ComparePage";
import { CostModelsPage } from "./costmodels/CostModelsPage";
import { DatasetPage } from "./dataset/DatasetPage";
import { FleetPage } from "./fleet/FleetPage";
import { JobPage } from "./job/JobPage";
import { JobsPage } from "./jobs/JobsPage";
import { KeyDialog } from "./KeyDialog";
import { KeysPage } from "./keys/KeysPage";
import { formatRoute, useRoute } from "./route";
import { TaskPage } from "./task/TaskPage";
import { Press } from "./ui/parts";
import { Boundary, Empty } from "./ui/states";
import { signOut, useSession } from "./api/session";

const PLACES = { jobs: "Jobs", fleet: "Fleet", dataset: "Dataset", costmodels: "Cost models", keys: "Keys" } as const;

export function App(): ReactNode {
  const { path } = useRoute();
  const [place = "jobs", ...rest] = path;
  const [keyNeeded, setKeyNeeded] = useState(false);
  const [visit, setVisit] = useState(0);
  useEffect(() => {
    const ask = (): void => setKeyNeeded(true);
    window.addEventListener(KEY_NEEDED, ask);
    return () => window.removeEventListener(KEY_NEEDED, ask);
  }, []);
  const [asking, setAsking] = useState(true);
  const goOn = (): void => {
    setKeyNeeded(false);
    setAsking(true);
    setVisit(visit + 1);
  };
  return (
    <>
      <a className="skip" href="#main" onClick={skip}>
        Skip to content
      </a>
      <header className="top">
        <a className="brand" href={formatRoute(["jobs"])}>
          <img src="icon.svg" alt="" width="22" height="22" /> Mallorn
        </a>
        <nav aria-label="Pages">
          {Object.entries(PLACES).map(([name, title]) => (
            <a key={name} href={formatRoute([name])} aria-current={name === (place === "compare" ? "jobs" : place) ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        {keyNeeded && !asking && <Press words="Sign in" onPress={() => setAsking(true)} />}
        <Who key={visit} onOut={goOn} />
      </header>
      <main id="main" tabIndex={-1} key={visit}>
        <Boundary key={path.join("/")}>
          <Place place={place} rest={rest} />
        </Boundary>
      </main>
      <Footer />
      {keyNeeded && asking && <KeyDialog onDone={goOn} onClose={() => setAsking(false)} />}
    </>
  );
}

function Place({ place, rest }: { place: string; rest: string[] }): ReactNode {
  const [id, part, index] = rest;
  if (place === "jobs" && id === undefined) return <JobsPage />;
  if (place === "jobs" && id !== undefined && part === "tasks" && index !== undefined) {
    return <TaskPage key={`${id}/${index}`} jobId={id} index={Number(index)} />;
  }
  if (place === "jobs" && id !== undefined) return <JobPage key={id} jobId={id} />;
  if (place === "fleet") return <FleetPage />;
  if (place === "dataset") return <DatasetPage />;
  if (place === "costmodels") return <CostModelsPage />;
  if (place === "keys") return <KeysPage />;
  if (place === "compare") return <ComparePage />;
  return (
    <>
      <h1>Nothing here</h1>
      <Empty title="There is no such page">
        <a href={formatRoute(["jobs"])}>To the jobs</a>
      </Empty>
    </>
  );
}

/** A plain link to `#main` would leave the page that the address names. */
function skip(event: { preventDefault: () => void }): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

export function Who({ onOut }: { onOut: () => void }): ReactNode {
  const { data: session } = useSession();
  if (!session?.requires_key || !session.owner) return null;
  const out = async (): Promise<void> => {
    await signOut().catch(() => undefined); // the next question tells
    onOut();
  };
  return (
    <span className="who">
      {session.owner}{" "}
      <Press words="Sign out" kind="small" onPress={() => void out()} />
    </span>
  );
}

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
