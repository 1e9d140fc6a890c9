"""How many trials a job has a use for."""

from services.planner.useful import TRIALS_TO_REST, TaskSpending, trials_left
from services.planner.values import Point


def effort(*best_us: float | None, **changes: object) -> TaskSpending:
    points = tuple(Point(16 * (at + 1), best) for at, best in enumerate(best_us))
    known = [best for best in best_us if best is not None]
    fields: dict[str, object] = {"weight": 1, "best_us": min(known, default=None), "points": points}
    return TaskSpending(**fields | changes)  # type: ignore[arg-type]


def test_a_task_that_nobody_tried_has_use_for_all_that_it_takes_to_rest() -> None:
    assert trials_left([effort(), effort()]) == 2 * TRIALS_TO_REST
    assert trials_left([effort(10.0)]) == TRIALS_TO_REST, "its first round found all it knows"


def test_rounds_without_a_gain_count_towards_the_rest_and_a_gain_begins_anew() -> None:
    assert trials_left([effort(10.0, 10.0, 12.0)]) == TRIALS_TO_REST - 32
    assert trials_left([effort(10.0, 10.0, 5.0)]) == TRIALS_TO_REST
    assert trials_left([effort(10.0, 9.99, 9.99)]) == TRIALS_TO_REST - 32, "noise is no gain"


def test_while_the_planner_lets_it_go_on_there_is_a_round_left() -> None:
    assert trials_left([effort(*[10.0] * 20)]) == 16
    assert trials_left([effort(*[10.0] * 20, over=True)]) == 0


def test_what_the_dataset_knew_and_what_is_too_small_are_not_searched_again() -> None:
    assert trials_left([effort(best_us=10.0, known_trials=500)]) == 16
    assert trials_left([effort(10_000.0, over=True), effort(0.1)]) == 0
