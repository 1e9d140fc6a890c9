"""A fixed tenth of ONNX's own cases of all its operators: each is right, or refused in a sentence."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from benchmarks.zoo.cases import cases
from benchmarks.zoo.trying import Trying
from workers.children.errors import ChildFailed

TENTH = sorted(cases())[::10]
#: Not in ONNX's words: what two's complement makes of a shift by more than the width.
UNDEFINED = ("test_bitshift_",)


@pytest.fixture(scope="module")
def child() -> Iterator[Trying]:
    with Trying() as trying:
        yield trying


@pytest.mark.parametrize("name", TENTH)
def test_a_case_is_right_or_refused(child: Trying, name: str) -> None:
    with suppress(ChildFailed):  # a pass of TVM's, which says what it cannot
        answer = child.try_case(name)
        assert answer.outcome in ("right", "refused") or name.startswith(UNDEFINED), answer
        assert answer.outcome == "right" or answer.message
