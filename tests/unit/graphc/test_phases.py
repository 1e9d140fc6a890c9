"""Phases say what they are for, and run passes in the orders that these ask for."""

from pathlib import Path

import pytest

from mallorn.graphc.core.graph_pass import ReportingPass
from mallorn.graphc.core.pass_registry import OWN_PASSES, following_passes, resolve_pass
from mallorn.graphc.phases import AFTER_SCHEDULES, BEFORE_SCHEDULES


def named(step: str) -> list[str]:
    """The names of our passes in a step of a recipe."""
    return [step, *(follower.name for follower in following_passes(step))] if step in OWN_PASSES else []


def on_the_seam() -> list[type[ReportingPass]]:
    return [resolve_pass(name) for name in OWN_PASSES]


@pytest.mark.parametrize("recipe", BEFORE_SCHEDULES)
@pytest.mark.parametrize("made", on_the_seam(), ids=lambda made: str(made.name))
def test_passes_come_after_those_that_they_need(made: type[ReportingPass], recipe: str) -> None:
    steps = (step for phase in BEFORE_SCHEDULES[recipe] for step in phase.steps)
    names = [name for step in steps for name in named(step["pass"])]
    earlier = [name for name in made.after if name in names]
    if made.name in names:
        assert all(names.index(name) < names.index(made.name) for name in earlier)


def test_what_passes_come_after_are_passes() -> None:
    assert {name for made in on_the_seam() for name in made.after} <= OWN_PASSES.keys()


def test_errors_are_planted_in_every_pass() -> None:
    """By a kit, or by a test of its own."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    forms = "class Test{}(", "modules_where_a_method_raises({},", "setattr({}, method, Mock(side_effect="
    names = [made.__name__ for made in on_the_seam()]
    assert [name for name in names if not any(form.format(name) in tests for form in forms)] == []


def test_a_phase_says_in_one_sentence_what_it_is_for() -> None:
    recipes = (*BEFORE_SCHEDULES.values(), *AFTER_SCHEDULES.values())
    every = [phase for recipe in recipes for phase in recipe]
    assert all(phase.purpose.endswith(".") and phase.purpose.count(". ") == 0 for phase in every)
    assert all(len(phase.purpose.split()) <= 20 for phase in every)
