/** What every worker and device did, stretch by stretch: the gaps are idle time. */
import { useMemo, type ReactNode } from "react";
import type { Activity } from "../api/types";
import { clock, count, duration, percent, plural } from "../format";
import { go } from "../route";
import { Fact, Facts } from "../ui/parts";
import { colourOf, errorRate, lanes, marks, stretch, type Lane, type Span, type Stretch, type Window } from "./lanes";
import { StintTable } from "./StintTable";

const COLOURS = 6;
/** Units of the drawing; it is stretched to the width that there is. */
const WIDTH = 10_000;
const HEIGHT = 20;

type Props = { activity: Activity; workers: readonly string[]; devices: readonly string[] };

export function Timeline({ activity, workers, devices }: Props): ReactNode {
  const { rounds, since, current_time } = activity;
  const window = { since, now: current_time };
  const all = useMemo<Stretch[]>(() => [...rounds, ...activity.stages.map(stretch)], [activity]);
  const byWorker = useMemo(() => lanes(once(all), (stint) => stint.worker, workers, window), [all, workers.join()]);
  const byDevice = useMemo(() => lanes(rounds, (stint) => stint.device, devices, window), [activity, devices.join()]);
  return (
    <>
      <Load activity={activity} devices={byDevice} />
      {!activity.is_complete && <p className="stale">More ran than is drawn: the newest is shown.</p>}
      <div className="timeline">
        <Lanes title="Workers" lanes={byWorker} window={window} share={({ busy }) => `${percent(busy)} busy`} />
        <Lanes title="Devices" lanes={byDevice} window={window} share={({ measuring }) => `${percent(measuring)} measuring`} />
        <Axis window={window} />
      </div>
      <p className="note">
        A bar is a round, a colour a job, the red part of it the share that failed; a thin bar is an import, a training or a finish. What is
        another owner's is grey. Of a round that was tried again the last attempt is drawn.
      </p>
      <details>
        <summary>All of it as a table</summary>
        <StintTable stints={all} />
      </details>
    </>
  );
}

/** A round that measured on two devices is one stretch of its worker's time. */
function once(stints: readonly Stretch[]): Stretch[] {
  const rounds = new Map<number, Stretch>();
  for (const stint of stints) {
    const known = rounds.get(stint.round_id);
    const sums = known && { trials: known.trials + stint.trials, failures: known.failures + stint.failures };
    rounds.set(stint.round_id, { ...stint, ...sums });
  }
  return [...rounds.values()];
}

function Load({ activity, devices }: { activity: Activity; devices: readonly Lane[] }): ReactNode {
  const rate = errorRate(activity.rounds);
  const waiting = (activity.jobs["queued"] ?? 0) + (activity.jobs["importing"] ?? 0);
  const open = Object.values(activity.jobs).reduce((sum, jobs) => sum + jobs, 0);
  const measuring = devices.reduce((sum, lane) => sum + lane.measuring, 0) / Math.max(1, devices.length);
  return (
    <Facts>
      <Fact name="Queue" note="planned, and no worker has begun">
        {count(activity.queued_rounds)} <small>{activity.queued_rounds === 1 ? "round" : "rounds"}</small>
      </Fact>
      <Fact name="Jobs under way" note={waiting === 0 ? "none waits for its import" : `${waiting} before the first round`}>
        {count(open)}
      </Fact>
      <Fact name="Devices measuring" note="of the window, on average">
        {devices.length === 0 ? "–" : percent(measuring)}
      </Fact>
      <Fact name="Failed" note="of all candidates in the window">
        <span className={rate !== null && rate > 0.2 ? "bad" : ""}>{percent(rate)}</span>
      </Fact>
    </Facts>
  );
}

type LanesProps = { title: string; lanes: readonly Lane[]; window: Window; share: (lane: Lane) => string };

function Lanes({ title, lanes: all, window, share }: LanesProps): ReactNode {
  return (
    <>
      <h3 className="lane-title">{title}</h3>
      {all.length === 0 && <p className="note">None that is known.</p>}
      {all.map((lane) => (
        <div key={lane.name} className="lane">
          <div className="lane-name" title={lane.name}>
            {lane.name}
            <small>
              {share(lane)}
              {lane.failures > 0 && <span className="bad"> · {percent(errorRate([lane]))} failed</span>}
            </small>
          </div>
          <svg
            className="lane-spans"
            viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
            preserveAspectRatio="none"
            role="img"
            aria-label={`${lane.name}: ${laneWords(lane)} since ${clock(window.since)}, ${share(lane)}`}
          >
            {lane.spans.map((span) => (
              <Bar key={span.stint.round_id} span={span} />
            ))}
          </svg>
        </div>
      ))}
    </>
  );
}

function laneWords({ spans }: Lane): string {
  const stages = spans.filter(({ stint }) => stint.stage !== undefined).length;
  const others = stages > 0 ? ` and ${plural(stages, "other stretch", "other stretches")}` : "";
  return `${plural(spans.length - stages, "round")}${others}`;
}

/** Pressed, a bar leads to its task or job; from the keyboard the table below does. */
function Bar({ span: { stint, from, to } }: { span: Span }): ReactNode {
  const { job_id: job, task_index: task } = stint;
  const known = job !== null;
  const marks = [`series-${colourOf(job, COLOURS)}`, stint.finished_at === null && "bar-open", known && "bar-known"];
  const across = { x: from * WIDTH, width: Math.max(6, (to - from) * WIDTH - 6) };
  const down = stint.stage === undefined ? { y: 0, height: HEIGHT } : { y: HEIGHT * 0.35, height: HEIGHT * 0.3 };
  const failed = stint.trials > 0 ? (stint.failures / stint.trials) * HEIGHT : 0;
  return (
    <g onClick={known ? () => go(["jobs", job, ...(task === null ? [] : ["tasks", String(task)])]) : undefined}>
      <title>{barWords(stint)}</title>
      <rect className={marks.filter(Boolean).join(" ")} {...across} {...down} />
      {failed > 0 && <rect className="bar-failed" {...across} y={HEIGHT - failed} height={failed} />}
    </g>
  );
}

function barWords(stint: Stretch): string {
  const does = stint.stage ?? stint.task_name ?? "a round";
  const what = stint.job_id === null ? `${does} of another owner` : `${stint.job_name}: ${does}`;
  const took = stint.finished_at === null ? "running" : duration(stint.finished_at - stint.started_at);
  const came = stint.stage === undefined ? `\n${plural(stint.trials, "trial")}, ${stint.failures} failed` : "";
  return `${what}\n${clock(stint.started_at)}, ${took}${came}`;
}

function Axis({ window }: { window: Window }): ReactNode {
  const offsetSec = -new Date(window.now * 1000).getTimezoneOffset() * 60;
  return (
    <div className="lane-axis" aria-hidden="true">
      {marks(window, offsetSec).map(({ sec, at }) => (
        <span key={sec} style={{ left: `${at * 100}%` }}>
          {new Date(sec * 1000).toLocaleTimeString(undefined, { timeStyle: "short" })}
        </span>
      ))}
    </div>
  );
}
