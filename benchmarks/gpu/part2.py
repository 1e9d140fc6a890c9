"""Part 2: the product tunes whole models, which are then timed in turn with torch."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.gpu.cells import ORIGIN, Cells, Row, Unfinished, keep_origin
from benchmarks.gpu.device import CPU, CUDA
from benchmarks.gpu.unpack import Incomplete, has_compiler

MODELS: Final = {CUDA: ("bert-small", "resnet18"), CPU: ("mlp",)}
TARGETS: Final = {CUDA: "cuda", CPU: "local"}
BUILDERS: Final = 16
# Shares of a run's seconds that a model's job may search, and that it may take in all.
SEARCH_SHARE: Final = 0.15
JOB_SHARE: Final = 0.32
_END_SEC: Final = 20.0  # for a service to end after it was asked to
_TOLD: Final = ("id", "state", "reason", "verdict", "progress", "report", "started_at", "finished_at")
_STANDING: Final = ("queued", "importing", "tuning", "finishing", "paused")


def run(kind: str, home: Path, out: Path, seconds: float, environment: Mapping[str, str]) -> None:
    """Tune and time missing cells. Raises Incomplete if TVM's compiler has not arrived."""
    if not has_compiler(home):
        raise Incomplete("TVM's compiler has not come: give all transfers after the first")
    began_sec = time.monotonic()
    until_sec = began_sec + seconds
    cells = Cells(home / "part2.jsonl", out / "part2.jsonl")
    keep_origin(cells, home / "kernels" / ORIGIN)
    product = Product(kind, home, environment)
    for model in MODELS[kind]:
        for name, step in (("tuned", product.tune), ("compiled", product.compile)):
            limit_sec = min(JOB_SHARE * seconds, until_sec - time.monotonic())
            if limit_sec > 0:
                cells.measure(f"{model}: {name}", lambda step=step, model=model: step(model, limit_sec))  # noqa: B023
    for model in MODELS[kind]:
        left_sec = until_sec - time.monotonic()
        if left_sec > 0:
            _compare(kind, home, out, model, left_sec, environment)


class Product:
    """Runs the product's command line, with its data in `home`."""

    def __init__(self, kind: str, home: Path, environment: Mapping[str, str]) -> None:
        self._kind, self._home = kind, home
        builders = BUILDERS if kind == CUDA else os.cpu_count() or 1
        own = {"MALLORN_DATA_DIR": str(home / "data"), "MALLORN_BUILDERS": str(builders)}
        self._environment = {**environment, **own, "HOME": str(home)}

    def tune(self, model: str, limit_sec: float) -> Row:
        """Tune a model, or resume its interrupted job; return the job's status and report."""
        file, schedules = self._model(model), self._home / f"{model}-tuned"
        minutes = ["--minutes", f"{SEARCH_SHARE / JOB_SHARE * limit_sec / 60:.2f}"]
        target = ["--target", TARGETS[self._kind]]
        job = self._standing_job(model)
        begin = ["resume", job] if job else ["tune", str(file), *target, *minutes]
        output = self._run([*begin, "--out", str(schedules), "--force", "--json"], limit_sec)
        finished = json.loads(output)
        return {name: finished.get(name) for name in _TOLD}

    def compile(self, model: str, limit_sec: float) -> Row:
        """Compile a model to HOME/MODEL.so. Raises Unfinished if it has no schedules."""
        schedules, library = self._home / f"{model}-tuned", self._home / f"{model}.so"
        if not schedules.exists():
            raise Unfinished(f"{model} has no schedules yet")
        arguments = ["--schedules", str(schedules), "-o", str(library), "--json"]
        result = json.loads(self._run(["compile", str(self._model(model)), *arguments], limit_sec))
        return {name: value for name, value in result.items() if isinstance(value, int | float | str)}

    def _model(self, model: str) -> Path:
        """Return the model's file; build it with a fixed seed if it does not exist."""
        file = self._home / "models" / f"{model}.onnx"
        if not file.exists():
            script = self._home / "tree" / "examples" / "build.py"
            command = [sys.executable, str(script), model, "-o", str(file.parent)]
            subprocess.run(command, env=self._environment, check=True, capture_output=True)
        return file

    def _standing_job(self, model: str) -> str:
        """Return the id of an unfinished job of this model; empty if there is none."""
        if not (self._home / "data").exists():
            return ""
        jobs = json.loads(self._run(["jobs", "--json"], 60.0) or "[]")
        listed = jobs["jobs"] if isinstance(jobs, dict) else jobs
        ids = [job["id"] for job in listed if job["name"] == model and job["state"] in _STANDING]
        return str(ids[0]) if ids else ""

    def _run(self, arguments: list[str], limit_sec: float) -> str:
        """Return a command's output; interrupt it after the limit. Raises Unfinished then."""
        process = subprocess.Popen(
            [sys.executable, "-m", "mallorn", *arguments],
            env=self._environment,
            cwd=self._home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=limit_sec)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                output, errors = process.communicate(timeout=_END_SEC)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, errors = process.communicate()
            raise Unfinished(f"{arguments[0]} took more than {limit_sec:.0f} s: {errors[-300:]}") from None
        if process.returncode:
            raise RuntimeError(f"{arguments[0]} ended with status {process.returncode}: {errors[-400:]}")
        return output


def _compare(
    kind: str, home: Path, out: Path, model: str, seconds: float, environment: Mapping[str, str]
) -> None:
    """Time the tuned model and torch in turn, in a process killed after `seconds`."""
    arguments = [kind, str(home), str(out), model]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.whole_models", *arguments], env=environment, cwd=home
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
