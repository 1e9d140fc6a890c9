"""Bases that know nothing of a network: fit on what others measured, in a data directory of their own."""

from collections.abc import Set
from dataclasses import replace
from pathlib import Path

from cli.dataset_place import dataset
from cli.lessons import lessons_from
from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import Target
from research.lessons.lesson import Lessons
from research.lessons.pretraining import Base, pretrain


def base_without(held_out: Set[str], source: Path, model: str, target: Target, folder: Path) -> list[Base]:
    """The bases for a target, stored in a new data directory; workloads held out teach nothing.

    Raises InvalidRequest where the rest does not suffice for any operator.
    """
    with (
        lessons_from(source, None, None, None, None) as taught,
        dataset(folder, None, create=True) as database,
    ):
        lessons = without(taught.lessons, held_out)
        found = list(pretrain(database, lessons, model, lowering=taught.lowering, home=target))
    stored = [base for base in found if base.name is not None]
    if not stored:
        raise InvalidRequest(
            f"{source} has too few measurements of other networks: {lessons.rows} rows",
            hint="mallorn tune OTHER.onnx --data DIR   (then --from DIR)",
        )
    return stored


def without(lessons: Lessons, held_out: Set[str]) -> Lessons:
    """The lessons of all other workloads."""
    return replace(lessons, tasks=[task for task in lessons.tasks if task.workload not in held_out])
