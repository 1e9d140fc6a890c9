"""Phases say what they are for, and run passes in the orders that these ask for."""

import pytest

from graphc.core.pass_registry import OWN_PASSES, defined
from graphc.core.reporting_pass import ReportingPass
from graphc.phases import AFTER_SCHEDULES, BEFORE_SCHEDULES


def named(stored: str) -> str:
    """A pass's name where it is a class of the seam, else the name that recipes store."""
    return str(getattr(defined(stored), "name", stored)) if stored in OWN_PASSES else stored


def on_the_seam() -> list[type[ReportingPass]]:
    made = map(defined, OWN_PASSES)
    return [each for each in made if isinstance(each, type) and issubclass(each, ReportingPass)]


@pytest.mark.parametrize("recipe", BEFORE_SCHEDULES)
@pytest.mark.parametrize("made", on_the_seam(), ids=lambda made: str(made.name))
def test_passes_come_after_those_that_they_need(made: type[ReportingPass], recipe: str) -> None:
    names = [named(step.name) for phase in BEFORE_SCHEDULES[recipe] for step in phase.steps]
    earlier = [name for name in made.after if name in names]
    if made.name in names:
        assert all(names.index(name) < names.index(made.name) for name in earlier)


def test_what_passes_come_after_are_passes() -> None:
    known = {named(stored) for stored in OWN_PASSES}
    assert {name for made in on_the_seam() for name in made.after} <= known


def test_a_phase_says_in_one_sentence_what_it_is_for() -> None:
    recipes = (*BEFORE_SCHEDULES.values(), *AFTER_SCHEDULES.values())
    every = [phase for recipe in recipes for phase in recipe]
    assert all(phase.purpose.endswith(".") and phase.purpose.count(". ") == 0 for phase in every)
    assert all(len(phase.purpose.split()) <= 20 for phase in every)
