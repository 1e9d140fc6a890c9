"""A recorded task: all measurements of one workload in one measuring context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.candidate import Sketch
from mallorn.core.values.machine import Machine, assumed, assumed_gpu
from mallorn.core.values.trial import Trial

_LANES: Final = 16


@dataclass(frozen=True)
class RecordedTask:
    """A workload, its sketches and its distinct candidates, in the order they were measured."""

    workload: str  # Workload.key
    name: str
    op: str
    structure: str
    flops: float
    args: Mapping[str, object]  # shapes and types, as db.tables.Workload.args has them
    descriptors: tuple[float, ...]
    target: str  # canonical JSON
    context: Mapping[str, object]  # host class, threads, evaluator: equal where two times compare
    sketches: tuple[Sketch, ...]
    trials: tuple[Trial, ...]  # with their origins: a recording is as biased as its searcher

    @cached_property
    def optimum_us(self) -> float | None:
        """The least latency recorded; None where every candidate failed."""
        return min((trial.latency_us for trial in self.trials if trial.latency_us is not None), default=None)

    @property
    def machine(self) -> Machine:
        """A recording says what its target is, and not how wide a vector is there."""
        target = Target(self.target)
        if not target.is_cpu:
            return assumed_gpu(str(target.attrs.get("arch", "")))
        return assumed(target.num_cores, _LANES)

    @property
    def failures(self) -> int:
        return sum(trial.outcome is not Outcome.OK for trial in self.trials)


def of_every_kind(tasks: Sequence[RecordedTask], count: int) -> list[RecordedTask]:
    """The operators in turn, the largest task of each first, until there are `count`; in their old order."""
    kinds: dict[str, list[RecordedTask]] = {}
    for task in sorted(tasks, key=lambda task: -task.flops):
        kinds.setdefault(task.op, []).append(task)
    in_turn = [task for turn in zip_longest(*kinds.values()) for task in turn if task is not None]
    kept = {id(task) for task in in_turn[:count]}
    return [task for task in tasks if id(task) in kept]
