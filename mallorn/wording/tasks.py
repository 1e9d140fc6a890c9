"""MetaSchedule's table of a job's tasks, and the families that they form."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mallorn.core.values.job import TaskStatus
from mallorn.wording.columns import Column

TASK_COLUMNS: Final = (
    Column[TaskStatus]("ID", lambda task: task.index),
    Column[TaskStatus]("Name", lambda task: task.name),
    Column[TaskStatus]("FLOP", lambda task: task.flops),
    Column[TaskStatus]("Weight", lambda task: task.weight),
    Column[TaskStatus]("Speed\n(GFLOPS)", lambda task: task.gflops),
    Column[TaskStatus]("Latency\n(us)", lambda task: task.latency_us),
    Column[TaskStatus]("Weighted\nLatency (us)", lambda task: task.weighted_latency_us),
    Column[TaskStatus]("Trials", lambda task: task.trials),
    Column[TaskStatus]("State", lambda task: task.state),
)


@dataclass(frozen=True, slots=True)
class Kinship:
    """Tasks that share a cost model, for one reason."""

    family: str
    why: str
    members: tuple[int, ...]


FAMILY_COLUMNS: Final = (
    Column[Kinship]("Family", lambda kin: kin.family),
    Column[Kinship]("IDs", lambda kin: ", ".join(map(str, kin.members))),
    Column[Kinship]("Why", lambda kin: kin.why),
)


def kinships(tasks: Iterable[TaskStatus]) -> list[Kinship]:
    """One a family and reason; a family may have gathered its members for several."""
    members: dict[tuple[str, str], list[int]] = {}
    for task in tasks:
        if task.family:
            members.setdefault((task.family, task.family_why), []).append(task.index)
    return [Kinship(family, why, tuple(found)) for (family, why), found in sorted(members.items())]
