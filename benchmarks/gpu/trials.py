"""Files of measured candidates: every trial of every method, with its sketch and its figures.

A file holds JSON lines of three kinds: a device, a sketch (trace and choices of one task, whose extents
they hold, written before its first trial), and a trial. `benchmarks.gpu.recording` turns such files into a
recording, and into rows of a dataset.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.cells import Value, read_rows
from mallorn.core.outcomes import Outcome
from mallorn.core.values.candidate import Candidate, Sketch, pack_choices, unpack_choices
from mallorn.core.values.trial import Trial

KIND: Final = "kind"
DEVICE: Final = "device"
SKETCH: Final = "sketch"
TRIAL: Final = "trial"


@dataclass(frozen=True, slots=True)
class MeasuredCandidate:
    """A trial of one method, with what the build and the device told of it."""

    task: str
    target: str
    method: str
    seed: int
    number: int  # of the method's trial, from 0
    sketch: Sketch
    trial: Trial
    kernels: list[Value] = field(default_factory=list)  # ptxas's figures of each kernel
    at_sec: float = 0.0  # since the method began, without time between stretches
    gpu_sec: float = 0.0  # during which the candidate held the GPU
    library: str = ""  # relative to the folder of the task's libraries


class TrialFile:
    """The trials of one task, each appended and flushed as it is measured.

    `mirror` gets the same lines; a file that lacks lines of its mirror takes them from there.
    """

    def __init__(self, own: Path, mirror: Path | None = None) -> None:
        self._files = [own, *([mirror] if mirror else [])]
        for file in self._files:
            file.parent.mkdir(parents=True, exist_ok=True)
        lines = max((_whole_lines(file) for file in self._files), key=len)
        for file in self._files:
            draft = file.with_suffix(".part")
            draft.write_text("".join(lines))
            draft.rename(file)
        self.trials = list(read_trials([own]))
        self._known = {(each.task, each.sketch.key) for each in self.trials}
        self._has_device = any(row.get(KIND) == DEVICE for row in read_rows(own))

    def of(self, method: str, seed: int) -> list[MeasuredCandidate]:
        """Return a method's trials, in the order of measurement."""
        return [each for each in self.trials if (each.method, each.seed) == (method, seed)]

    def append_device(self, device: dict[str, Value]) -> None:
        """Store the measuring device, once."""
        if not self._has_device:
            self._append([{KIND: DEVICE, **device}])
            self._has_device = True

    def append(self, measured: MeasuredCandidate) -> None:
        """Store a trial, and before it a sketch that the file does not have yet."""
        sketch, trial = measured.sketch, measured.trial
        rows: list[dict[str, Any]] = []
        if (measured.task, sketch.key) not in self._known:
            content = {"trace": sketch.trace, "choices": pack_choices(sketch.choices)}
            about = {KIND: SKETCH, "task": measured.task, "key": sketch.key, "ordinal": sketch.ordinal}
            rows.append(about | content)
            self._known.add((measured.task, sketch.key))
        rows.append(
            {
                KIND: TRIAL,
                **{name: getattr(measured, name) for name in ("task", "target", "method", "seed", "number")},
                "sketch": sketch.key,
                "decisions": list(map(int, trial.candidate.decisions)),
                "outcome": str(trial.outcome),
                "run_us": [round(us, 3) for us in trial.run_us],
                "build_ms": trial.build_ms,
                "origin": trial.origin,
                "predicted": trial.predicted,
                "disturbed": trial.disturbed,
                "error": trial.error,
                "kernels": measured.kernels,
                "at_sec": round(measured.at_sec, 3),
                "gpu_sec": round(measured.gpu_sec, 4),
                "library": measured.library,
            }
        )
        self._append(rows)
        self.trials.append(measured)

    def _append(self, rows: Iterable[dict[str, Any]]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        for file in self._files:
            with file.open("a") as lines:
                lines.write(text)
                lines.flush()
                os.fsync(lines.fileno())


def read_trials(files: Iterable[Path]) -> Iterator[MeasuredCandidate]:
    """Yield the trials of files, each of which holds the sketches of its own trials."""
    for file in files:
        sketches: dict[tuple[str, str], Sketch] = {}
        for line in read_rows(file):
            row: dict[str, Any] = dict(line)
            if row.get(KIND) == SKETCH:
                choices = unpack_choices(row["choices"])
                sketches[row["task"], row["key"]] = Sketch(row["key"], row["trace"], choices, row["ordinal"])
            elif row.get(KIND) == TRIAL:
                yield _trial(row, sketches[row["task"], row["sketch"]])


def read_device(file: Path) -> dict[str, Any]:
    """Return the measuring device of a file of trials; empty if it has none."""
    for row in read_rows(file):
        if row.get(KIND) == DEVICE:
            return {name: value for name, value in row.items() if name != KIND}
    return {}


def _trial(row: dict[str, Any], sketch: Sketch) -> MeasuredCandidate:
    trial = Trial(
        Candidate(sketch.key, tuple(row["decisions"])),
        Outcome.read(row["outcome"]),
        origin=row["origin"],
        build_ms=row["build_ms"],
        run_us=tuple(row["run_us"]),
        error=row["error"],
        predicted=row["predicted"],
        disturbed=row["disturbed"],
    )
    names = ("task", "target", "method", "seed", "number", "kernels", "at_sec", "gpu_sec", "library")
    return MeasuredCandidate(sketch=sketch, trial=trial, **{name: row[name] for name in names})


def _whole_lines(file: Path) -> list[str]:
    if not file.exists():
        return []
    lines = file.read_text().splitlines(keepends=True)
    return lines if not lines or lines[-1].endswith("\n") else lines[:-1]
