"""Parts 2 and 4: the product tunes whole models, which are then timed in turn with torch.

Part 2 searches for a share of its seconds, in float32. Part 4 measures 1,000 candidates of each model and
precision; what an earlier stretch of minutes measured on another machine comes back from its dataset.
"""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from benchmarks.gpu.cells import ORIGIN, Cells, Row, Unfinished, keep_origin
from benchmarks.gpu.device import CPU, CUDA
from benchmarks.gpu.unpack import Incomplete, has_compiler

TARGETS: Final = {CUDA: "cuda", CPU: "local"}
BUILDERS: Final = 16
# Shares of a run's seconds that a model's job may search, and that it may take in all.
SEARCH_SHARE: Final = 0.15
JOB_SHARE: Final = 0.32
_END_SEC: Final = 20.0  # for a service to end after it was asked to
_TOLD: Final = (
    "id",
    "state",
    "waiting_because",
    "ended_because",
    "verdict",
    "progress",
    "report",
    "started_at",
    "finished_at",
)
ARCHIVE: Final = "part4.tar.xz"
_DATASET: Final = "dataset"  # in HOME: what another machine measured
_MEASURED: Final = "measured.json"  # in HOME: trials by model that other machines measured
_DATASET_SEC: Final = 60.0  # of an export or an import
_STANDING: Final = ("queued", "importing", "tuning", "finishing", "paused")


@dataclass(frozen=True, slots=True)
class Plan:
    """Models, precisions and trials of a part, and the shares of its seconds."""

    name: str
    models: Mapping[str, tuple[str, ...]]
    precisions: Mapping[str, tuple[str, ...]]
    trials: Mapping[str, int]  # of a model and precision, by device; none: as many as the time allows
    job_share: float


PART2: Final = Plan(
    "part2",
    {CUDA: ("bert-small", "resnet18"), CPU: ("mlp",)},
    {CUDA: ("float32",), CPU: ("float32",)},
    {},
    JOB_SHARE,
)
PART4: Final = Plan(
    "part4",
    {CUDA: ("bert-small", "resnet18"), CPU: ("mlp",)},
    {CUDA: ("float32", "fp16"), CPU: ("float32",)},
    {CUDA: 1000, CPU: 4},
    0.9,
)


def run(kind: str, home: Path, out: Path, seconds: float, environment: Mapping[str, str]) -> None:
    """Run part 2. Raises Incomplete if TVM's compiler has not arrived."""
    run_plan(PART2, kind, home, out, seconds, environment)


def run_plan(
    plan: Plan, kind: str, home: Path, out: Path, seconds: float, environment: Mapping[str, str]
) -> None:
    """Tune and time missing cells. Raises Incomplete if TVM's compiler has not arrived."""
    if not has_compiler(home):
        raise Incomplete("TVM's compiler has not come: give all transfers after the first")
    until_sec = time.monotonic() + seconds
    cells = Cells(home / f"{plan.name}.jsonl", out / f"{plan.name}.jsonl")
    keep_origin(cells, home / "kernels" / ORIGIN)
    product = Product(plan, kind, home, environment)
    for model in plan.models[kind]:
        for precision in plan.precisions[kind]:
            form = form_name(model, precision)
            for name, step in (("tuned", product.tune), ("compiled", product.compile)):
                limit_sec = min(plan.job_share * seconds, until_sec - time.monotonic())
                if limit_sec > 0 and (name == "tuned" or f"{form}: tuned" in cells):
                    arguments = model, precision, limit_sec
                    cells.measure(f"{form}: {name}", lambda step=step, arguments=arguments: step(*arguments))
            left_sec = until_sec - time.monotonic()
            if left_sec > 0 and f"{form}: compiled" in cells:
                _compare(plan, kind, home, out, (model, precision), left_sec, environment)
    if plan.trials:
        product.keep_dataset(out)


def form_name(model: str, precision: str) -> str:
    """Return the name of a model in a precision: in float32 the model's own."""
    return model if precision == "float32" else f"{model}-{precision}"


class Product:
    """Runs the product's command line, with its data in `home`."""

    def __init__(self, plan: Plan, kind: str, home: Path, environment: Mapping[str, str]) -> None:
        self._plan, self._kind, self._home = plan, kind, home
        builders = BUILDERS if kind == CUDA else os.cpu_count() or 1
        self._data = home / f"data-{plan.name}"
        own = {"MALLORN_DATA_DIR": str(self._data), "MALLORN_BUILDERS": str(builders)}
        self._environment = {**environment, **own, "HOME": str(home)}
        if (home / _DATASET).exists() and not self._data.exists():
            self._run(["dataset", "import", str(home / _DATASET)], _DATASET_SEC)

    def tune(self, model: str, precision: str, limit_sec: float) -> Row:
        """Tune a model, or resume its interrupted job; return the job's status and report."""
        name = form_name(model, precision)
        file = self._model(model, name)
        schedules = self._home / f"{self._plan.name}-{name}-tuned"
        if trials := self._plan.trials.get(self._kind):
            budget = ["--trials", str(max(1, trials - self._measured().get(name, 0)))]
        else:
            budget = ["--minutes", f"{SEARCH_SHARE / JOB_SHARE * limit_sec / 60:.2f}"]
        options = ["--target", TARGETS[self._kind], "--precision", precision]
        job = self._standing_job(name)
        begin = ["resume", job] if job else ["tune", str(file), *options, *budget]
        output = self._run([*begin, "--out", str(schedules), "--force", "--json"], limit_sec)
        finished = json.loads(output)
        return {name: finished.get(name) for name in _TOLD}

    def keep_dataset(self, out: Path) -> None:
        """Pack the dataset and the trials of each model for another machine's stretch of minutes."""
        if not self._data.exists():
            return
        folder = self._home / _DATASET
        rmtree(folder, ignore_errors=True)
        with suppress(RuntimeError, Unfinished):  # an empty dataset is not exported
            self._run(["dataset", "export", str(folder)], _DATASET_SEC)
            (self._home / _MEASURED).write_text(json.dumps(self._count()))
            with tarfile.open(out / ARCHIVE, "w:xz", preset=1) as archive:
                archive.add(folder, _DATASET)
                archive.add(self._home / _MEASURED, _MEASURED)

    def _measured(self) -> dict[str, int]:
        """Return the trials by model that earlier machines measured."""
        file = self._home / _MEASURED
        counts: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        return counts

    def _count(self) -> dict[str, int]:
        """Return the trials by model, of earlier machines and of this one's jobs."""
        counts = dict(self._measured())
        for job in self._jobs():
            done = job.get("progress", {}).get("trials") or 0
            counts[job["name"]] = counts.get(job["name"], 0) + int(done)
        return counts

    def compile(self, model: str, precision: str, limit_sec: float) -> Row:
        """Compile a tuned model to a library in HOME. Raises Unfinished if it has no schedules."""
        name = form_name(model, precision)
        schedules = self._home / f"{self._plan.name}-{name}-tuned"
        library = library_file(self._home, self._plan.name, name)
        if not schedules.exists():
            raise Unfinished(f"{name} has no schedules yet")
        arguments = ["--schedules", str(schedules), "-o", str(library), "--json"]
        result = json.loads(self._run(["compile", str(self._model(model)), *arguments], limit_sec))
        return {name: value for name, value in result.items() if isinstance(value, int | float | str)}

    def _model(self, model: str, name: str = "") -> Path:
        """Return the model's file; build it with a fixed seed if it does not exist. With `name`, return the
        same file under that name, which its job gets, too."""
        file = self._home / "models" / f"{model}.onnx"
        if not file.exists():
            script = self._home / "tree" / "examples" / "build.py"
            command = [sys.executable, str(script), model, "-o", str(file.parent)]
            subprocess.run(command, env=self._environment, check=True, capture_output=True)
        named = file.with_stem(name or model)
        if not named.exists():
            os.link(file, named)
        return named

    def _standing_job(self, model: str) -> str:
        """Return the id of an unfinished job of this model; empty if there is none."""
        ids = [job["id"] for job in self._jobs() if job["name"] == model and job["state"] in _STANDING]
        return str(ids[0]) if ids else ""

    def _jobs(self) -> list[dict[str, Any]]:
        if not self._data.exists():
            return []
        jobs = json.loads(self._run(["jobs", "--json"], 60.0) or "[]")
        listed: list[dict[str, Any]] = jobs["jobs"] if isinstance(jobs, dict) else jobs
        return listed

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


def library_file(home: Path, part: str, name: str) -> Path:
    """Return the file of a compiled model."""
    return home / f"{part}-{name}.so"


def take_earlier(archive: Path, home: Path) -> None:
    """Unpack the dataset of an earlier machine, unless this home has one."""
    if archive.is_file() and not (home / _DATASET).exists():
        with tarfile.open(archive) as earlier:
            # Python 3.11 has filters since 3.11.4.
            earlier.extraction_filter = getattr(tarfile, "tar_filter", lambda member, _path: member)
            earlier.extractall(home)


def _compare(
    plan: Plan,
    kind: str,
    home: Path,
    out: Path,
    form: tuple[str, str],
    seconds: float,
    environment: Mapping[str, str],
) -> None:
    """Time the tuned model and torch in turn, in a process killed after `seconds`."""
    arguments = [kind, str(home), str(out), *form, plan.name]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.whole_models", *arguments], env=environment, cwd=home
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
