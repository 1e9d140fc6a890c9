"""Draw random tasks: shapes from real networks with one to three dimensions changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mallorn.core.errors import InvalidRequest
from mallorn.research.generate.task_rule_file import Kind

MOST_CHANGES: Final = 3  # changes per task; with more, tasks stop resembling real ones
PATIENCE: Final = 200  # draws without a new task after which a kind is exhausted
GENERATED: Final = "generated-"  # prefix reserved for the names of generated networks


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random task: its kind, a key of BUILDERS for its ONNX nodes, and its dimensions."""

    kind: str
    build: str
    shape: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """The task as text: its kind and all dimensions, such as `dense rows=1 inner=64`."""
        return f"{self.kind} " + " ".join(f"{name}={size}" for name, size in self.shape)


def network_name(seed: int, number: int) -> str:
    """Return the name of network `number` in the dataset generated with `seed`."""
    return f"{GENERATED}{seed}-{number}"


def draw(kinds: Sequence[Kind], count: int, seed: int) -> list[Drawn]:
    """Draw `count` distinct tasks, one from each kind in turn, with the random seed `seed`.

    Raises InvalidRequest if too few distinct ones are found, or a rule fails for a shape.
    """
    rng, open_kinds = np.random.default_rng(seed), list(kinds)
    tasks: dict[Drawn, None] = {}
    while len(tasks) < count and open_kinds:
        kind = open_kinds.pop(0)
        if (task := _draw_new(kind, rng, tasks)) is not None:
            tasks[task] = None
            open_kinds.append(kind)
    if len(tasks) < count:
        message = f"the rules lead to {len(tasks)} tasks, not to {count}"
        raise InvalidRequest(message, hint=f"mallorn dataset generate --tasks {len(tasks)}")
    return list(tasks)


def _draw_new(kind: Kind, rng: np.random.Generator, tasks: dict[Drawn, None]) -> Drawn | None:
    for _ in range(PATIENCE):
        shape = dict(kind.seeds[int(rng.integers(len(kind.seeds)))])
        names = sorted(kind.changes)
        count = min(len(names), int(rng.integers(1, MOST_CHANGES + 1)))
        for index in rng.choice(len(names), size=count, replace=False):
            name = names[index]
            rules = kind.changes[name]
            shape[name] = rules[int(rng.integers(len(rules)))].value(shape)
        task = Drawn(kind.name, kind.build, tuple(shape.items()))
        if kind.allows(shape) and task not in tasks:
            return task
    return None
