/** Starts a job: a file, a target, a budget and options. */
import { useRef, useState, type FormEvent, type ReactNode } from "react";
import { ApiError, apiError, get, post } from "../api/client";
import { useResource } from "../api/resource";
import type { Device, Job, List, NewJob } from "../api/types";
import { bytes, percent, target as targetWords } from "../format";
import { go } from "../route";
import { Choice, type Option, TextField } from "../ui/fields";
import { Buttons, Dialog } from "../ui/parts";
import { Failed } from "../ui/states";
import { Options, useOptions } from "./OptionFields";
import { chosenOptions, givenBy, type Given } from "./options";
import { upload } from "./upload";

const OTHER = "other";

/** `again` is a job to try once more: its model, and all that it was asked for, with what may help. */
type Props = { file: File | null; again?: Job; onClose: () => void };

export function SubmitDialog({ again, ...props }: Props): ReactNode {
  const [picked, setPicked] = useState<File | null>(null);
  const file = picked ?? props.file;
  const [target, setTarget] = useState(again?.target ?? "local");
  const [otherTarget, setOtherTarget] = useState("");
  const [trials, setTrials] = useState(again === undefined ? "" : String(again.trials ?? ""));
  const [minutes, setMinutes] = useState(again?.minutes == null ? "" : String(again.minutes));
  const [name, setName] = useState(again?.name ?? "");
  const [seed, setSeed] = useState(String(again?.seed ?? 0));
  const [priority, setPriority] = useState(String(again?.priority ?? 0));
  const [given, setGiven] = useState<Given>(again === undefined ? {} : givenBy({ ...again.options, ...again.suggest }));
  const options = useOptions();
  const [share, setShare] = useState<number | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const attempt = useRef(newKey());
  const devices = useResource<List<Device>>("devices", (signal) => get("devices", {}, signal), null);
  const known = [...new Set([...(again ? [again.target] : []), ...(devices.data?.items ?? []).map((device) => device.target)])];
  const targets: Option[] = [
    ["local", "local: the device beside the coordinator"],
    ...known.map((text): Option => [text, targetWords(text)]),
    [OTHER, "another: JSON or a TVM tag …"],
  ];

  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    const known = file === null ? again : undefined;
    if (file === null && known === undefined) return;
    setError(null);
    setShare(0);
    try {
      const modelId = known?.model_id ?? (await upload(file!, setShare)).id;
      const job: NewJob = {
        model_id: modelId,
        target: target === OTHER ? otherTarget.trim() : target,
        trials: trials === "" ? null : Number(trials),
        minutes: minutes === "" ? null : Number(minutes),
        name: name.trim() || file?.name || null,
        seed: Number(seed),
        priority: Number(priority),
        options: chosenOptions(options.data?.items ?? [], given),
      };
      const made = await post<Job>("jobs", job, { "Idempotency-Key": attempt.current });
      props.onClose();
      go(["jobs", made.id]);
    } catch (reason) {
      // Where no answer came, the job may have been made: sent again under the same key it is found.
      if (reason instanceof ApiError && reason.status !== 0) attempt.current = newKey();
      setError(apiError(reason));
      setShare(null);
    }
  };

  return (
    <Dialog title={again ? `Tune ${again.name} again` : "Tune a model"} onClose={props.onClose}>
      <form className="stack" onSubmit={(event) => void submit(event)}>
        <label className="drop">
          <span>{file ? <strong>{file.name}</strong> : again ? <>The model of {again.name}, as it was uploaded; or another file</> : "Drop an ONNX file here, or choose one"}</span>
          {file && <span className="note">{bytes(file.size)}</span>}
          <input type="file" accept=".onnx" aria-label="ONNX file" onChange={(event) => setPicked(event.target.files?.[0] ?? null)} />
        </label>
        {file && !file.name.toLowerCase().endsWith(".onnx") && <p className="bad">This does not look like an ONNX file.</p>}
        <Choice label="Target" value={target} options={targets} onChoose={setTarget} />
        {target === OTHER && <TextField label="Target as JSON or tag" required value={otherTarget} placeholder='{"kind":"llvm","num-cores":4}' onText={setOtherTarget} />}
        <div className="pair">
          <TextField label="Budget in trials" type="number" min={0} max={2147483647} value={trials} placeholder={minutes === "" ? "as many as are worth it" : "no limit"} onText={setTrials} />
          <TextField label="and at most minutes" type="number" min={0.1} step="any" value={minutes} placeholder="no limit" onText={setMinutes} />
        </div>
        {trials === "" && minutes === "" && <p className="note">The job ends by itself, when its next 100 trials are not worth their seconds.</p>}
        <Options of={options} given={given} onChange={setGiven}>
          <TextField label="Name" maxLength={200} value={name} placeholder="the file's" onText={setName} />
          <TextField label="Seed" type="number" required min={0} max={2147483647} value={seed} onText={setSeed} />
          <TextField label="Priority" type="number" required min={-1000} max={1000} value={priority} onText={setPriority} />
        </Options>
        {error && <Failed error={error} />}
        <Buttons
          leave="Close"
          act={share === null ? "Start tuning" : share < 1 ? `Uploading ${percent(share)}` : "Starting …"}
          busy={(file === null && again === undefined) || share !== null}
          onLeave={props.onClose}
        />
      </form>
    </Dialog>
  );
}

/** `crypto.randomUUID` is there over https and on loopback only. */
function newKey(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}
