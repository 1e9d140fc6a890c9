"""Read logs of auto_scheduler, such as TenSet's: one JSON object per line.

Its steps are translated into a trace, for features that need no program. A record describes
loop transformations by the numbers of stages and loops. It does not contain the program, so
stages and loops get names when a step first refers to them.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.storable_json import compact_json
from mallorn.core.values.candidate import Choice, ChoiceKind, Sketch
from mallorn.workers.shared_schedules.read_json_lines import Report, read_lines, require_text, run_times_us
from mallorn_research.tuner_logs.foreign_records import ForeignTrial

UNROLLS: Final = (0, 16, 64, 512, 1024)  # all that auto_scheduler's policies use
UNROLL: Final = "auto_unroll_max_step$"
NOTHING: Final = 0  # IteratorAnnotation kNone
MOST_LOOPS: Final = 64  # per stage; only a broken record refers to more
# By IteratorAnnotation: the trace instruction and its attribute.
ANNOTATIONS: Final = {
    1: ("Unroll", ""),
    2: ("Annotate", "meta_schedule.vectorize"),
    3: ("Annotate", "meta_schedule.parallel"),
    4: ("Bind", "vthread"),
    5: ("Bind", "blockIdx.x"),
    6: ("Bind", "threadIdx.x"),
    7: ("Bind", "blockIdx.y"),
    8: ("Bind", "threadIdx.y"),
    9: ("Bind", "blockIdx.z"),
    10: ("Bind", "threadIdx.z"),
    11: ("Tensorize", ""),
}
FORMAT: Final = "tenset"
# By auto_scheduler's MeasureErrorNo.
OUTCOMES: Final = {
    0: Outcome.OK,
    1: Outcome.BUILD_ERROR,  # the schedule could not be applied
    2: Outcome.BUILD_ERROR,  # host code
    3: Outcome.BUILD_ERROR,  # device code
    4: Outcome.RUN_ERROR,
    5: Outcome.WRONG_RESULT,
    6: Outcome.BUILD_TIMEOUT,
    7: Outcome.RUN_TIMEOUT,
    8: Outcome.RUN_ERROR,  # unknown
}


@dataclass(frozen=True, slots=True)
class Tile:
    """A loop that a step split: its block, its extent, and the number of resulting loops."""

    block: str
    extent: int
    levels: int


@dataclass(frozen=True, slots=True)
class ReadSteps:
    """Translated steps: a sketch (trace with open decisions), decisions and split loops."""

    sketch: Sketch
    decisions: tuple[int, ...]
    tiles: tuple[Tile, ...]


def read_steps(steps: str) -> ReadSteps:
    """Translate a record's steps from JSON. Raises ValueError for an unknown or bad step."""
    reader = _Reader()
    try:
        for step in json.loads(steps):
            reader.read(step)
    except (LookupError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ValueError(f"no steps of auto_scheduler: {error!r}") from error
    trace = json.dumps(reader.trace, separators=(",", ":"))
    key = hashlib.sha256(trace.encode()).hexdigest()[:16]
    return ReadSteps(Sketch(key, trace, tuple(reader.choices)), tuple(reader.decisions), tuple(reader.tiles))


@dataclass
class _Stage:
    """Names in the trace of a stage's block and of the loops that steps have used so far."""

    block: str
    loops: list[str] = field(default_factory=list)


@dataclass
class _Reader:
    trace: list[list[Any]] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    _stages: dict[int, _Stage] = field(default_factory=dict)
    _factors: list[list[str]] = field(default_factory=list)  # factor names of each step
    _named: int = 0

    def read(self, step: Sequence[Any]) -> None:
        kind, *arguments = step
        self._factors.append([])
        READERS[kind](self, *arguments)

    def split(self, index: int, loop: int, extent: int, lengths: Sequence[int], _inwards: int) -> None:
        factors = (-(-extent // prod(lengths)) if extent else 1, *lengths)
        if not all(type(factor) is int and 0 < factor < 2**31 for factor in factors):
            raise ValueError(f"no factors: {factors}")
        names = [self._new_name("v") for _ in factors]
        self.trace.append(["SamplePerfectTile", [], [len(factors)], names])
        self.choices.append(Choice(ChoiceKind.TILE, len(factors), extent=extent))
        self.decisions += factors
        self.tiles.append(Tile(self._stage(index).block, extent, len(factors)))
        self._factors[-1] = names
        self._replace_split_loop(index, loop, names, len(factors))

    def follow_split(self, index: int, loop: int, source: int, levels: int) -> None:
        """Split a loop by an earlier split's first factors; the last one is inferred."""
        names = self._factors[source]
        self._replace_split_loop(index, loop, [*names[:levels], None], levels + 1)

    def follow_fused(self, index: int, loop: int, _sources: Sequence[int], _level: int, _order: int) -> None:
        self._replace_split_loop(index, loop, [], 2)

    def fuse(self, index: int, fused: Sequence[int]) -> None:
        loops = [self._loop(index, loop) for loop in fused]
        fused_loop = self._new_name("l")
        self._stage(index).loops[fused[0] : fused[-1] + 1] = [fused_loop]
        self.trace.append(["Fuse", loops, [], [fused_loop]])

    def reorder(self, index: int, order: Sequence[int]) -> None:
        loops = [self._loop(index, loop) for loop in order]
        self._stage(index).loops = [*loops]
        self.trace.append(["Reorder", loops, [], []])

    def annotate(self, index: int, loop: int, annotation: int) -> None:
        if annotation != NOTHING:
            kind, word = ANNOTATIONS[annotation]
            self.trace.append([kind, [self._loop(index, loop)], [word], []])

    def add_unroll_pragma(self, index: int, _loop: int, pragma: str) -> None:
        if not pragma.startswith(UNROLL):
            raise ValueError(f"unknown pragma {pragma!r}")
        self.decisions.append(UNROLLS.index(int(pragma.removeprefix(UNROLL))))
        values = tuple(range(len(UNROLLS)))
        self.choices.append(Choice(ChoiceKind.CATEGORICAL, 1, values=values, labels=UNROLLS))
        name = self._new_name("v")
        self.trace.append(["SampleCategorical", [], [UNROLLS], [name]])
        arguments = [self._stage(index).block, name]
        self.trace.append(["Annotate", arguments, ["meta_schedule.unroll_explicit"], []])

    def compute_at(self, index: int, target: int, loop: int) -> None:
        self.trace.append(["ComputeAt", [self._stage(index).block, self._loop(target, loop)], [], []])

    def cache_read(self, index: int, scope: str, _readers: Sequence[int]) -> None:
        self._insert_stage(index + 1, "CacheRead", [self._stage(index).block], scope)

    def cache_write(self, index: int, scope: str) -> None:
        self._insert_stage(index, "CacheWrite", [self._stage(index).block], scope)

    def rfactor(self, index: int, loop: int, _place: int) -> None:
        """Insert the stage that an RFactor step creates; it takes over known loops."""
        stage, loop_name = self._stage(index), self._loop(index, loop)
        self._insert_stage(index, "RFactor", [loop_name], "")
        self._stages[index].loops, stage.loops = stage.loops, []

    def append_block_step(self, kind: str, index: int) -> None:
        self.trace.append([kind, [self._stage(index).block], [], []])

    def _replace_split_loop(self, index: int, loop: int, factors: Sequence[str | None], parts: int) -> None:
        old_loop = self._loop(index, loop)
        names = [self._new_name("l") for _ in range(parts)]
        self._stage(index).loops[loop : loop + 1] = names
        self.trace.append(["Split", [old_loop, *factors], [], names])

    def _insert_stage(self, index: int, kind: str, inputs: list[str], scope: str) -> None:
        self._stages = {number + (number >= index): stage for number, stage in self._stages.items()}
        self._stages[index] = _Stage(self._new_name("b"))
        self.trace.append([kind, inputs, [scope], [self._stages[index].block]])

    def _stage(self, index: int) -> _Stage:
        if index not in self._stages:
            self._stages[index] = _Stage(self._new_name("b"))
            self.trace.append(["GetSBlock", [], [f"stage{index}", "main"], [self._stages[index].block]])
        return self._stages[index]

    def _loop(self, index: int, loop: int) -> str:
        if not 0 <= loop < MOST_LOOPS:
            raise ValueError(f"no loop: {loop}")
        stage = self._stage(index)
        new = [self._new_name("l") for _ in range(len(stage.loops), loop + 1)]
        if new:
            stage.loops += new
            self.trace.append(["GetLoops", [stage.block], [], new])
        return stage.loops[loop]

    def _new_name(self, prefix: str) -> str:
        self._named += 1
        return f"{prefix}{self._named}"


READERS: Final[dict[str, Callable[..., None]]] = {
    "SP": _Reader.split,
    "FSP": _Reader.follow_split,
    "FFSP": _Reader.follow_fused,
    "FU": _Reader.fuse,
    "RE": _Reader.reorder,
    "AN": _Reader.annotate,
    "PR": _Reader.add_unroll_pragma,
    "CA": _Reader.compute_at,
    "CHR": _Reader.cache_read,
    "CHW": _Reader.cache_write,
    "RF": _Reader.rfactor,
    "CI": lambda reader, at: reader.append_block_step("ComputeInline", at),
    "CR": lambda reader, at: reader.append_block_step("ComputeRoot", at),
    "SA": lambda reader, at, *_: reader.append_block_step("StorageAlign", at),
}


def read_records(path: Path, report: Report) -> Iterator[ForeignTrial]:
    """Return the records of a file; report and skip lines that cannot be read. Raises
    NotFound if the file does not exist."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}", hint=f"ls {path.parent}")
    return (record for _, record in read_lines(path, _record, report))


def _record(line: Any) -> ForeignTrial:
    (task, target, *_), (_stages, steps) = line["i"]
    costs, code, _all_cost, timestamp = line["r"]
    if code not in OUTCOMES:
        raise ValueError(f"unknown failure code {code!r}")
    outcome = OUTCOMES[code]
    times = run_times_us(costs) if outcome is Outcome.OK else ()
    if outcome is Outcome.OK and not times:
        raise ValueError("the record of a successful run has the time of a failed one")
    if not math.isfinite(timestamp):
        raise ValueError(f"the date of the record is {timestamp!r}, not a finite number")
    return ForeignTrial(
        format=FORMAT,
        task=require_text(task, "task"),
        target=require_text(target, "target"),
        steps=compact_json(steps),
        outcome=outcome,
        failure=str(code) if code else None,
        run_us=times,
        measured_at=float(timestamp),
    )
