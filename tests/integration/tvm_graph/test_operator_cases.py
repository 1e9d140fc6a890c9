"""A fixed tenth of ONNX's own cases of all its operators: each comes out as it did, or better.

`make test` tries one of the cases whose names begin with the same two words (`attention_4d`).
"""

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest

from benchmarks.zoo.trying import Trying
from mallorn.workers.subprocesses.errors import ChildFailed
from tests.fixtures.command_line import ROOT

# Their names as they are kept: to collect ONNX's cases takes seconds, and the child does it once.
KEPT = json.loads((ROOT / "docs/results/zoo_operators.json").read_text())["cases"]
TENTH = sorted(KEPT)[::10]
RIGHT = [name for name in TENTH if KEPT[name]["outcome"] == "right"]
FIRST = {tuple(name.split("_")[1:3]): name for name in reversed(RIGHT)}.values()


@pytest.fixture(scope="module")
def child() -> Iterator[Trying]:
    with Trying() as trying:
        yield trying


def test_most_of_the_tenth_was_right() -> None:
    assert len(RIGHT) > 0.85 * len(TENTH)


@pytest.mark.parametrize(
    "name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.long) for name in RIGHT]
)
def test_a_case_that_was_right_is_right(child: Trying, name: str) -> None:
    assert child.try_case(name).outcome == "right"


@pytest.mark.parametrize("name", [name for name in TENTH if name not in RIGHT])
def test_any_other_case_is_right_or_refused(child: Trying, name: str) -> None:
    with suppress(ChildFailed):  # a pass of TVM's, which says what it cannot
        answer = child.try_case(name)
        assert answer.outcome in ("right", "refused"), answer
        assert answer.outcome == "right" or answer.message
