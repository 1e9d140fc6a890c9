"""Code of the child process that reads recordings (see RecordingReader)."""

from collections import Counter
from pathlib import Path

from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import Target
from mallorn.core.values.manifest import MeasuredOn
from mallorn.core.virtual_devices import remove_virtual_device
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.subprocesses.serve_calls import serve
from mallorn.workers.subprocesses.typed_method import collect_handlers
from mallorn_research.replay.measurer import REPLAY, RecordedTrials, RecordingReader


def read_target_trials(path: str, name: str, target: str) -> RecordedTrials:
    """Return the trials of a target in its measuring context with most tasks."""
    from mallorn_research.replay.recording_file import read_tasks  # raises if pyarrow is missing

    try:
        tasks = read_tasks(Path(path))
    except InvalidRequest as error:
        message, hint = (text.replace(path, name) for text in (error.message, error.hint))
        raise InvalidRequest(message, hint=hint) from None
    real = remove_virtual_device(Target(target))
    matching = [task for task in tasks if remove_virtual_device(Target(task.target)) == real]
    if not matching:
        targets = dict.fromkeys(remove_virtual_device(Target(task.target)).text for task in tasks)
        hint = "   or   ".join(f"--target '{text}'" for text in targets)
        raise InvalidRequest(f"{name} was not recorded for {real}", hint=hint)
    context = Counter(str(task.context) for task in matching).most_common(1)[0][0]
    comparable = [task for task in matching if str(task.context) == context]
    host = MeasuredOn.model_validate(comparable[0].context)
    name_of_device = f"{REPLAY}-{Target(target).key}"
    endpoint = Endpoint(name_of_device, REPLAY, host.host_class, host.threads, host.tvm_version)
    return RecordedTrials(endpoint, {task.workload: task.trials for task in comparable})


if __name__ == "__main__":
    handler = RecordingReader.read_target_trials.make_handler(read_target_trials)
    serve(collect_handlers(RecordingReader, handler))
