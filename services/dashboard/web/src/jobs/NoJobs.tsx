/** The first thing that a newcomer sees: ways to a first job. */
import type { ReactNode } from "react";
import { useAct } from "../api/resource";
import { post } from "../api/client";
import { useSession } from "../api/session";
import type { Job } from "../api/types";
import { go } from "../route";
import { Copy, Entry, Press, Section } from "../ui/parts";
import { Empty, Failed } from "../ui/states";
import { EXAMPLE_NAME, exampleModel } from "./example";
import { snippets } from "../job/commands";
import { upload } from "./upload";

const EXAMPLE_TRIALS = 64;

export function NoJobs({ onSubmit, onArchived }: { onSubmit: () => void; onArchived: () => void }): ReactNode {
  const session = useSession();
  return (
    <>
      <Empty title="No jobs yet">
        <p>Drop an ONNX file anywhere on this page, choose one, or try it with a small network that is made here.</p>
        <div className="buttons">
          <Press words="Tune a model …" kind="primary" onPress={onSubmit} />
          <Example />
        </div>
        <p className="note">
          Ended jobs may be <button type="button" className="link" onClick={onArchived}>archived</button>.
        </p>
      </Empty>
      <Section id="elsewhere" title="From elsewhere">
        <dl className="about snippets">
          {snippets(undefined, session.data?.requires_key).map(({ name, text }) => (
            <div key={name}>
              <Entry name={name}>
                <Copy text={text} label={`the ${name} example`} />
              </Entry>
            </div>
          ))}
        </dl>
      </Section>
    </>
  );
}

function Example(): ReactNode {
  const { busy, error, act } = useAct();
  const tune = async (): Promise<void> => {
    const model = await upload(exampleModel(), () => {});
    const job = await post<Job>("jobs", { model_id: model.id, target: "local", trials: EXAMPLE_TRIALS, name: EXAMPLE_NAME });
    go(["jobs", job.id]);
  };
  return (
    <>
      <Press words={busy ? "Starting …" : `Tune an example (${EXAMPLE_TRIALS} trials)`} disabled={busy} onPress={() => void act(tune)} />
      {error && <Failed error={error} />}
    </>
  );
}
