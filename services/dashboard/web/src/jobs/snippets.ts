/** How to hand in a model without this page, with this server's own address. */
import { reaching, serverAddress } from "../job/commands";

export type Snippet = { name: string; text: string };

export function snippets(server: string = serverAddress(), hasKey = false): Snippet[] {
  const key = hasKey ? ' -H "Authorization: Bearer $MALLORN_API_KEY"' : "";
  const api = `${server}/api/v1`;
  return [
    { name: "Command line", text: reaching("mallorn tune model.onnx", server) },
    { name: "Python", text: `import mallorn\n\njob = mallorn.Client("${server}").tune("model.onnx", target="local")\nprint(job.id)` },
    {
      name: "curl",
      text: [
        `curl -sf${key} -T model.onnx "${api}/models?name=model.onnx"   # its answer holds the model's id`,
        `curl -sf${key} -H "Content-Type: application/json" -d '{"model_id": "ID", "target": "local"}' ${api}/jobs`,
      ].join("\n"),
    },
  ];
}
