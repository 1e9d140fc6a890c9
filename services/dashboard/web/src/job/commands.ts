/** What can be typed about a job, or to hand in a model, with the address of this server where it is not the usual one. */
import type { Job } from "../api/types";
import { isAuto, isFinal, searches } from "../jobs/standing";

const USUAL = "http://127.0.0.1:8000";

/** This server's address, without a slash at the end. */
export function serverAddress(base: string = document.baseURI): string {
  return new URL(".", base).href.replace(/\/$/, "");
}

/** Commands that ask a server; the others work on files or start a part of it. */
const ASKING = /^mallorn (tune|submit|jobs|show|tasks|explain|compare|report|watch|pause|resume|cancel|models|fetch|schedules|records|costmodels|devices|workers)\b/;

/** A command as it is to be typed to reach this server. */
export function reaching(command: string, server: string = serverAddress()): string {
  return server === USUAL || !ASKING.test(command) || command.includes(" --url ") ? command : `${command} --url ${server}`;
}

/** What for, and the command. */
export function commandsFor(job: Job, server: string = serverAddress()): [string, string][] {
  const known: [string, string, boolean][] = [
    ["Follow it", `mallorn watch ${job.id}`, !isFinal(job)],
    ["Go on with more trials", `mallorn resume ${job.id} --trials 100`, job.state === "done" && searches(job)],
    ["Go on while that is worth it", `mallorn resume ${job.id} --auto`, job.state === "done" && searches(job) && !isAuto(job)],
    ["Search on from what is known", "mallorn tune MODEL.onnx --auto", job.state === "done" && !searches(job)],
    ["Go on", `mallorn resume ${job.id}`, job.state === "paused"],
    ["Why every round was made", `mallorn jobs explain ${job.id}`, job.progress.tasks > 0],
    ["The same page as a file", `mallorn jobs report ${job.id}`, job.progress.tasks > 0],
    ["Fetch its schedules and its library", `mallorn fetch ${job.id} --out tuned`, job.exported],
  ];
  const here = known.filter(([, , fits]) => fits).map(([why, command]): [string, string] => [why, reaching(command, server)]);
  return job.exported ? [...here, ["Then build the model", "mallorn compile MODEL.onnx --schedules tuned -o model.so"]] : here;
}

export type Snippet = { name: string; text: string };

export function snippets(server: string = serverAddress(), hasKey = false): Snippet[] {
  const key = hasKey ? ' -H "Authorization: Bearer $MALLORN_API_KEY"' : "";
  const api = `${server}/api/v1`;
  return [
    { name: "Command line", text: reaching("mallorn tune model.onnx", server) },
    { name: "Python", text: `import mallorn\n\njob = mallorn.Client("${server}").submit("model.onnx", target="local")\nprint(job.id)` },
    {
      name: "curl",
      text: [
        `curl -sf${key} -T model.onnx "${api}/models?name=model.onnx"   # its answer holds the model's id`,
        `curl -sf${key} -H "Content-Type: application/json" -d '{"model_id": "ID", "target": "local"}' ${api}/jobs`,
      ].join("\n"),
    },
  ];
}
