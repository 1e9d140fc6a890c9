"""The rival's side: answers requests, a JSON line each, with the model that its engine has loaded.

Needs numpy alone beside the engine, since the interpreter that runs it need not have Mallorn installed.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import numpy as np

WARM_UP_CALLS: Final = 2
LONG_CALL_US: Final = 100_000.0
Arrays = dict[str, Any]
Run = Callable[[], list[Any]]
Load = Callable[[str, Arrays, int], Run]  # model file, inputs in calling order, threads


def serve(load: Load) -> None:
    """Load what the first line names, then time it and write its outputs until there is no more line."""
    # What an engine prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run: Run | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if run is None:
                run = load(request["model"], _inputs(request["inputs"]), request["threads"])
                result: Any = None
            else:
                result = _answer(run, request)
            reply = {"result": result}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"[:2000]}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def _answer(run: Run, request: dict[str, Any]) -> Any:
    if request["method"] == "save_outputs":
        outputs = {f"output_{index}": np.asarray(array) for index, array in enumerate(run())}
        np.savez(request["outputs_npz"], **outputs)
        return len(outputs)
    for _ in range(WARM_UP_CALLS):
        if _timed_us(run) > LONG_CALL_US:
            break
    return [median(_timed_us(run) for _ in range(request["number"])) for _ in range(request["bursts"])]


def _inputs(path: str) -> Arrays:
    with np.load(path) as archive:
        return {name: np.asarray(archive[name], order="C") for name in archive.files}


def _timed_us(run: Run) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e6
