"""Which of a task's close candidates the whole model gets, by what each takes inside it."""

from types import SimpleNamespace
from typing import Any

from mallorn.workers.finish.decide import WORTH, fastest_schedules_inside


def candidate(task: str, slot: int) -> Any:
    return SimpleNamespace(contest=SimpleNamespace(task=SimpleNamespace(name=task)), slot=slot)


FIRST, SECOND, THIRD = ([candidate("dense", place), candidate("conv2d", place)] for place in range(3))


def chosen(*times: dict[str, float]) -> list[int]:
    return [winner.slot for winner in fastest_schedules_inside([FIRST, SECOND, THIRD], times)]


def test_every_task_gets_what_is_fastest_inside_the_model() -> None:
    assert chosen(
        {"dense": 10.0, "conv2d": 50.0}, {"dense": 8.0, "conv2d": 60.0}, {"dense": 9.0, "conv2d": 40.0}
    ) == [1, 2]


def test_a_difference_that_noise_explains_changes_nothing() -> None:
    almost = 1 - WORTH / 2
    assert chosen(
        {"dense": 10.0, "conv2d": 50.0},
        {"dense": 10.0 * almost, "conv2d": 50.0 * almost},
        {"dense": 10.0, "conv2d": 50.0},
    ) == [0, 0]


def test_a_task_that_is_not_seen_inside_the_model_keeps_its_winner() -> None:
    assert chosen({"dense": 10.0}, {"dense": 10.0}, {"dense": 10.0}) == [0, 0]


def test_a_rival_that_is_not_seen_inside_the_model_is_not_chosen() -> None:
    assert chosen({"dense": 10.0, "conv2d": 50.0}, {"conv2d": 40.0}, {"conv2d": 50.0}) == [0, 1]
