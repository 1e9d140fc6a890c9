/** The verified schedules of a task: what each makes of the program, and how two of them differ. */
import type { ReactNode } from "react";
import { all, get } from "../api/client";
import { useResource } from "../api/resource";
import type { Job, Schedule, Task, WholeSchedule } from "../api/types";
import { clock, latency, tiny } from "../format";
import { noSchedule } from "../job/answers";
import { formatRoute, useChoices } from "../route";
import { Choice, type Option } from "../ui/fields";
import { Section, Switch } from "../ui/parts";
import { Empty, Shown } from "../ui/states";
import { CodeView, DiffView } from "./DiffView";
import { chosenPair, faster } from "./pair";

export function Schedules({ job, task }: { job: Job; task: Task }): ReactNode {
  const query = { workload: task.workload, target: job.target, beaten: true };
  const schedules = useResource<Schedule[]>(`schedules/${task.workload}/${job.state}`, (signal) => all("schedules", query, signal), null);
  return (
    <Section id="schedule" title="Schedule">
      <Shown of={schedules} what="the schedules" none={<NoSchedule job={job} />}>
        {(items) => <Chosen job={job} schedules={items} />}
      </Shown>
    </Section>
  );
}

function NoSchedule({ job }: { job: Job }): ReactNode {
  return job.finished_at === null ? (
    <Empty title="No schedule yet">The best candidate becomes one when a job finishes, once it was measured again and checked.</Empty>
  ) : (
    <Empty title="No schedule">{noSchedule(job)}</Empty>
  );
}

function Chosen({ job, schedules }: { job: Job; schedules: readonly Schedule[] }): ReactNode {
  const [choices, choose] = useChoices();
  const { shown, other } = chosenPair(schedules, job.id, choices["schedule"], choices["beside"]);
  const options = schedules.map((schedule): Option => [String(schedule.id), scheduleWords(schedule, job.id)]);
  const others: Option[] = [["", "the unscheduled program"], ...options.filter(([id]) => id !== String(shown.id))];
  const trace = choices["view"] === "trace";
  return (
    <>
      <div className="toolbar">
        <Choice label="Schedule" value={String(shown.id)} options={options} onChoose={(schedule) => choose({ schedule })} />
        <Choice label="beside" value={String(other?.id ?? "")} options={others} onChoose={(beside) => choose({ beside })} />
        <Switch label="What is shown" name="view" options={["program", "trace"]} value={trace ? "trace" : "program"} onChange={(view) => choose({ view: view === "trace" ? view : "" })} />
      </div>
      <Facts shown={shown} other={other} />
      <Scripts shown={shown} other={other} trace={trace} />
    </>
  );
}

function Facts({ shown, other }: { shown: Schedule; other: Schedule | null }): ReactNode {
  return (
    <p className="note">
      {shown.is_bound && "at most "}
      {latency(shown.latency_us)}, confidence interval {latency(shown.low_us)} to {latency(shown.high_us)}, relative error{" "}
      {tiny(shown.max_error)}
      {shown.job_id && (
        <>
          , promoted by job <a href={formatRoute(["jobs", shown.job_id])}>{shown.job_id}</a>
        </>
      )}
      .{other && ` ${faster(shown, other)}`}
    </p>
  );
}

function scheduleWords(schedule: Schedule, jobId: string): string {
  return `${latency(schedule.latency_us)}, ${schedule.job_id === jobId ? "this job" : clock(schedule.created_at)} (#${schedule.id})`;
}

type ScriptsProps = { shown: Schedule; other: Schedule | null; trace: boolean };

function Scripts({ shown, other, trace }: ScriptsProps): ReactNode {
  const ids = other === null ? [shown.id] : [shown.id, other.id];
  const whole = useResource<WholeSchedule[]>(
    `scripts/${ids.join()}`,
    (signal) => Promise.all(ids.map((id) => get<WholeSchedule>(`schedules/${id}`, {}, signal))),
    null,
  );
  return (
    <Shown of={whole} what="what it does">
      {([one, two]) => {
        const missing = [one, two].find((schedule) => schedule?.scripts === null);
        if (one?.scripts == null || missing) {
          return <Empty title={`No script of schedule #${missing?.id} was kept`}>It was promoted by an earlier version. The next job of this model keeps one.</Empty>;
        }
        if (two?.scripts) {
          const part = trace ? "trace" : "scheduled";
          return (
            <DiffView
              left={{ title: `Schedule #${two.id}, ${latency(two.latency_us)}`, text: two.scripts[part] }}
              right={{ title: `Schedule #${one.id}, ${latency(one.latency_us)}`, text: one.scripts[part] }}
            />
          );
        }
        if (trace) return <CodeView title={`Trace of schedule #${one.id}`} text={one.scripts.trace} />;
        return (
          <DiffView
            left={{ title: "Unscheduled", text: one.scripts.original }}
            right={{ title: `Schedule #${one.id}, ${latency(one.latency_us)}`, text: one.scripts.scheduled }}
          />
        );
      }}
    </Shown>
  );
}
