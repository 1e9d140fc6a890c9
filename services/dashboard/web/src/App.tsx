/** The frame around every page: its name, the ways to the others, and the question for a key. */
import { useEffect, useState, type ReactNode } from "react";
import { KEY_NEEDED } from "./api/client";
import { ComparePage } from "./compare/ComparePage";
import { CostModelsPage } from "./costmodels/CostModelsPage";
import { DatasetPage } from "./dataset/DatasetPage";
import { FleetPage } from "./fleet/FleetPage";
import { JobPage } from "./job/JobPage";
import { JobsPage } from "./jobs/JobsPage";
import { Footer } from "./Footer";
import { KeyDialog } from "./KeyDialog";
import { KeysPage } from "./keys/KeysPage";
import { formatRoute, useRoute } from "./route";
import { TaskPage } from "./task/TaskPage";
import { Boundary } from "./ui/Boundary";
import { Empty } from "./ui/states";
import { Who } from "./Who";

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
        {keyNeeded && !asking && (
          <button type="button" onClick={() => setAsking(true)}>
            Sign in
          </button>
        )}
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
