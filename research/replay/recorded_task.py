"""A recorded task: all measurements of one workload in one measuring context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.candidate import Sketch
from mallorn.core.values.machine import Machine, assume_typical_cpu, assume_typical_gpu
from mallorn.core.values.trial import Trial

_LANES: Final = 16


@dataclass(frozen=True)
class RecordedTask:
    """A workload, its sketches and its distinct candidates in the order of measurement."""

    workload: str  # Workload.key
    name: str
    op: str
    structure: str
    flops: float
    args: Mapping[str, object]  # shapes and types, as in mallorn.db.tables.Workload.args
    descriptors: tuple[float, ...]
    target: str  # canonical JSON
    context: Mapping[str, object]  # host class, threads, evaluator: times compare if equal
    sketches: tuple[Sketch, ...]
    trials: tuple[Trial, ...]  # with origins: a recording has the bias of its searcher

    @cached_property
    def optimum_us(self) -> float | None:
        """The lowest recorded latency; None if every candidate failed."""
        return min((trial.latency_us for trial in self.trials if trial.latency_us is not None), default=None)

    @property
    def machine(self) -> Machine:
        """Machine assumed for the target; CPUs get 16 lanes, which recordings lack."""
        target = Target(self.target)
        if not target.is_cpu:
            return assume_typical_gpu(str(target.attrs.get("arch", "")))
        return assume_typical_cpu(target.num_cores, _LANES)

    @property
    def failures(self) -> int:
        return sum(trial.outcome is not Outcome.OK for trial in self.trials)


def select_every_operator(tasks: Sequence[RecordedTask], count: int) -> list[RecordedTask]:
    """Select `count` tasks, in turn the largest of each operator; keep their order."""
    kinds: dict[str, list[RecordedTask]] = {}
    for task in sorted(tasks, key=lambda task: -task.flops):
        kinds.setdefault(task.op, []).append(task)
    in_turn = [task for row in zip_longest(*kinds.values()) for task in row if task is not None]
    selected_ids = {id(task) for task in in_turn[:count]}
    return [task for task in tasks if id(task) in selected_ids]
