"""What a finish hands out: the winners, or rivals of theirs that do better inside the whole model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from workers.finish.checking import Checker
from workers.finish.joint import Joint, affordable, decide_inside
from workers.finish.stand import Built, Stand, device_is_here
from workers.finish.undone import Undone, twice
from workers.finish.winners import Winner

COMPILE: Final = "compile the tuned model"
INSIDE: Final = "decide close contests inside the whole model"


@dataclass(frozen=True, slots=True)
class Handout:
    """The schedules as tuning records, and the model compiled with them where that worked."""

    winners: Sequence[Winner]
    directory: Path
    built: Built | None
    report: dict[str, Any]


def records_alone(stand: Stand, winners: Sequence[Winner]) -> Handout:
    """Write the winners' records, which is never left out."""
    return Handout(winners, stand.write("export", winners), None, {})


def choose(stand: Stand, winners: Sequence[Winner], check: Checker, undone: Undone) -> Handout:
    """Go on from the winners' records as far as it works."""
    directory = stand.write("export", winners)
    first = undone.attempt(COMPILE, partial(twice, partial(stand.compile, directory, winners)))
    if first is None:
        return Handout(winners, directory, None, {})
    if undone.attempt("make inputs for the model", stand.prepare) is None:
        return Handout(winners, directory, None, first.found)
    joint = undone.attempt(INSIDE, partial(_inside, stand, first, check))
    chosen = joint.build if joint else first
    inside = {"inside_the_model": joint.report} if joint and joint.report else {}
    return Handout(chosen.winners, chosen.directory, chosen, chosen.found | inside)


def _inside(stand: Stand, first: Built, check: Checker) -> Joint:
    """The first build where there is nothing to decide, or no time for it."""
    if device_is_here(stand.claimed) and affordable(stand, first):
        return decide_inside(stand, first, check)
    return Joint(first, {})
