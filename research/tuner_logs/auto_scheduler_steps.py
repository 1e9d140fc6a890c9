"""auto_scheduler's steps in the words of a trace: they tell enough for views that need no program.

A record says how its loops were cut, in numbers of stages and of loops. What the program computes it does not
say, so that stages and loops are named when a step first speaks of them.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from mallorn.core.values.candidate import Choice, ChoiceKind, Sketch

UNROLLS: Final = (0, 16, 64, 512, 1024)  # all that its sketch policies choose from
UNROLL: Final = "auto_unroll_max_step$"
NOTHING: Final = 0  # an annotation that changes nothing
MOST_LOOPS: Final = 64  # of a stage; only a broken record speaks of more
# IteratorAnnotation: the instruction, and its word.
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


@dataclass(frozen=True, slots=True)
class Tile:
    """A loop of a stage that was cut: how long it was, and in how many."""

    block: str
    extent: int
    levels: int


@dataclass(frozen=True, slots=True)
class ReadSteps:
    """A record's candidate as ours are: a sketch and its decisions, and the loops that it cut."""

    sketch: Sketch
    decisions: tuple[int, ...]
    tiles: tuple[Tile, ...]


def read_steps(steps: str) -> ReadSteps:
    """The candidate of a record's steps. Raises ValueError for steps that nothing here knows."""
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
    """A block and its loops, as far as steps spoke of them."""

    block: str
    loops: list[str] = field(default_factory=list)


@dataclass
class _Reader:
    """Writes the trace and the decisions, step by step."""

    trace: list[list[Any]] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    _stages: dict[int, _Stage] = field(default_factory=dict)
    _factors: list[list[str]] = field(default_factory=list)  # by step, of those that split
    _named: int = 0

    def read(self, step: Sequence[Any]) -> None:
        kind, *given = step
        self._factors.append([])
        READERS[kind](self, *given)

    def split(self, at: int, loop: int, extent: int, lengths: Sequence[int], _inwards: int) -> None:
        factors = (-(-extent // prod(lengths)) if extent else 1, *lengths)
        if not all(type(factor) is int and 0 < factor < 2**31 for factor in factors):
            raise ValueError(f"no factors: {factors}")
        names = [self._name("v") for _ in factors]
        self.trace.append(["SamplePerfectTile", [], [len(factors)], names])
        self.choices.append(Choice(ChoiceKind.TILE, len(factors), extent=extent))
        self.decisions += factors
        self.tiles.append(Tile(self._stage(at).block, extent, len(factors)))
        self._factors[-1] = names
        self._cut(at, loop, names, len(factors))

    def follow(self, at: int, loop: int, source: int, levels: int) -> None:
        """The last of its factors is the product of those that are left."""
        names = self._factors[source]
        self._cut(at, loop, [*names[:levels], None], levels + 1)

    def follow_fused(self, at: int, loop: int, _sources: Sequence[int], _level: int, _inwards: int) -> None:
        self._cut(at, loop, [], 2)

    def fuse(self, at: int, fused: Sequence[int]) -> None:
        loops = [self._loop(at, loop) for loop in fused]
        whole = self._name("l")
        self._stage(at).loops[fused[0] : fused[-1] + 1] = [whole]
        self.trace.append(["Fuse", loops, [], [whole]])

    def reorder(self, at: int, order: Sequence[int]) -> None:
        loops = [self._loop(at, loop) for loop in order]
        self._stage(at).loops = [*loops]
        self.trace.append(["Reorder", loops, [], []])

    def annotate(self, at: int, loop: int, annotation: int) -> None:
        if annotation != NOTHING:
            kind, word = ANNOTATIONS[annotation]
            self.trace.append([kind, [self._loop(at, loop)], [word], []])

    def pragma(self, at: int, _loop: int, pragma: str) -> None:
        if not pragma.startswith(UNROLL):
            raise ValueError(f"unknown pragma {pragma!r}")
        self.decisions.append(UNROLLS.index(int(pragma.removeprefix(UNROLL))))
        self.choices.append(
            Choice(ChoiceKind.CATEGORICAL, 1, values=tuple(range(len(UNROLLS))), labels=UNROLLS)
        )
        name = self._name("v")
        self.trace.append(["SampleCategorical", [], [UNROLLS], [name]])
        self.trace.append(["Annotate", [self._stage(at).block, name], ["meta_schedule.unroll_explicit"], []])

    def move(self, at: int, target: int, loop: int) -> None:
        self.trace.append(["ComputeAt", [self._stage(at).block, self._loop(target, loop)], [], []])

    def cache_read(self, at: int, scope: str, _readers: Sequence[int]) -> None:
        self._new(at + 1, "CacheRead", [self._stage(at).block], scope)

    def cache_write(self, at: int, scope: str) -> None:
        self._new(at, "CacheWrite", [self._stage(at).block], scope)

    def factor(self, at: int, loop: int, _place: int) -> None:
        """Of the two stages that it becomes, the first has the loops of old, and the second new ones."""
        whole, along = self._stage(at), self._loop(at, loop)
        self._new(at, "RFactor", [along], "")
        self._stages[at].loops, whole.loops = whole.loops, []

    def of_block(self, kind: str, at: int) -> None:
        self.trace.append([kind, [self._stage(at).block], [], []])

    def _cut(self, at: int, loop: int, factors: Sequence[str | None], parts: int) -> None:
        whole = self._loop(at, loop)
        names = [self._name("l") for _ in range(parts)]
        self._stage(at).loops[loop : loop + 1] = names
        self.trace.append(["Split", [whole, *factors], [], names])

    def _new(self, at: int, kind: str, of: list[str], scope: str) -> None:
        """A stage before the one that has this number."""
        self._stages = {number + (number >= at): stage for number, stage in self._stages.items()}
        self._stages[at] = _Stage(self._name("b"))
        self.trace.append([kind, of, [scope], [self._stages[at].block]])

    def _stage(self, at: int) -> _Stage:
        if at not in self._stages:
            self._stages[at] = _Stage(self._name("b"))
            self.trace.append(["GetSBlock", [], [f"stage{at}", "main"], [self._stages[at].block]])
        return self._stages[at]

    def _loop(self, at: int, loop: int) -> str:
        if not 0 <= loop < MOST_LOOPS:
            raise ValueError(f"no loop: {loop}")
        stage = self._stage(at)
        new = [self._name("l") for _ in range(len(stage.loops), loop + 1)]
        if new:
            stage.loops += new
            self.trace.append(["GetLoops", [stage.block], [], new])
        return stage.loops[loop]

    def _name(self, of: str) -> str:
        self._named += 1
        return f"{of}{self._named}"


READERS: Final[dict[str, Callable[..., None]]] = {
    "SP": _Reader.split,
    "FSP": _Reader.follow,
    "FFSP": _Reader.follow_fused,
    "FU": _Reader.fuse,
    "RE": _Reader.reorder,
    "AN": _Reader.annotate,
    "PR": _Reader.pragma,
    "CA": _Reader.move,
    "CHR": _Reader.cache_read,
    "CHW": _Reader.cache_write,
    "RF": _Reader.factor,
    "CI": lambda reader, at: reader.of_block("ComputeInline", at),
    "CR": lambda reader, at: reader.of_block("ComputeRoot", at),
    "SA": lambda reader, at, *_: reader.of_block("StorageAlign", at),
}
