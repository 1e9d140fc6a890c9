"""Draws tasks: shapes of real networks with a few numbers changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mallorn.core.errors import InvalidRequest
from research.generate.rule_expressions import Values
from research.generate.task_rule_file import Kind

MOST_CHANGES: Final = 3  # with more, tasks stop resembling real ones
PATIENCE: Final = 200  # draws without a new task before giving up
GENERATED: Final = "generated-"  # prefix of drawn networks' names, reserved for them


@dataclass(frozen=True, slots=True)
class Drawn:
    """A task to measure."""

    kind: str
    build: str
    shape: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """A name with all numbers, valid in ONNX."""
        return f"{self.kind} " + " ".join(f"{name}={size}" for name, size in self.shape)


def network_name(seed: int, number: int) -> str:
    """The name of the network of a batch of drawn tasks."""
    return f"{GENERATED}{seed}-{number}"


def draw(kinds: Sequence[Kind], count: int, seed: int) -> list[Drawn]:
    """Distinct tasks, kinds in turn; the same seed draws the same tasks.

    Raises InvalidRequest if the rules allow fewer.
    """
    rng, left = np.random.default_rng(seed), list(kinds)
    found: dict[Drawn, None] = {}
    while len(found) < count and left:
        kind = left.pop(0)
        if (new := _new(kind, rng, found)) is not None:
            found[new] = None
            left.append(kind)
    if len(found) < count:
        raise InvalidRequest(
            f"the rules lead to {len(found)} tasks, not to {count}",
            hint=f"mallorn dataset generate --tasks {len(found)}",
        )
    return list(found)


def _new(kind: Kind, rng: np.random.Generator, known: dict[Drawn, None]) -> Drawn | None:
    for _ in range(PATIENCE):
        shape = _changed(kind, rng)
        drawn = Drawn(kind.name, kind.build, tuple(shape.items()))
        if kind.allows(shape) and drawn not in known:
            return drawn
    return None


def _changed(kind: Kind, rng: np.random.Generator) -> Values:
    """A seed with one to three of its numbers changed, each by one of its rules."""
    shape = dict(kind.seeds[int(rng.integers(len(kind.seeds)))])
    names = sorted(kind.changes)
    some = rng.choice(len(names), size=min(len(names), int(rng.integers(1, MOST_CHANGES + 1))), replace=False)
    for name in (names[at] for at in some):
        rules = kind.changes[name]
        shape[name] = rules[int(rng.integers(len(rules)))].value(shape)
    return shape
