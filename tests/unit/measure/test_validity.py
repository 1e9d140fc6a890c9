"""Candidates are checked by all builders at once, each by the one that builds it."""

import json
from collections.abc import Hashable
from typing import Any, cast

import pytest

from mallorn.core.errors import MallornError
from mallorn.workers.measure.build_candidates import choose_builder, validate_in_builders
from mallorn.workers.subprocesses.errors import ChildCrashed
from mallorn.workers.subprocesses.pending_call import Call
from mallorn.workers.subprocesses.process_pool import ChildPool, Finished

CANDIDATES = [("trace", (number, 1)) for number in range(12)]


class Pool:
    """Three builders, that find odd numbers valid, and answer one after the other, the last one first."""

    size = 3

    def __init__(self, deadly: int | None = None) -> None:
        self.asked: dict[Hashable, list[int]] = {}
        self.deadly = deadly

    @property
    def tags(self) -> list[Hashable]:
        return list(self.asked)

    def submit(self, call: Call[Any], tag: Hashable, place: int) -> bool:
        assert place not in self.asked
        self.asked[place] = [first for _, (first, _) in json.loads(call.params)["candidates"]]
        return True

    def poll(self, timeout_sec: float) -> list[Finished[Any]]:
        place, numbers = self.asked.popitem()
        for number in numbers:
            assert choose_builder((number, 1), self.size) == place
        end: list[bool] | MallornError = [number % 2 == 1 for number in numbers]
        return [Finished(place, ChildCrashed("died") if self.deadly in numbers else end)]


def ask(pool: Pool) -> list[bool]:
    return validate_in_builders(cast("ChildPool[list[bool]]", pool), "program", "target", CANDIDATES)


def test_answers_come_in_the_order_of_the_candidates() -> None:
    assert ask(Pool()) == [number % 2 == 1 for number in range(12)]


def test_nothing_to_ask_is_answered() -> None:
    assert validate_in_builders(cast("ChildPool[list[bool]]", Pool()), "program", "target", []) == []


def test_one_that_dies_leaves_no_builder_with_a_task() -> None:
    pool = Pool(deadly=5)
    with pytest.raises(ChildCrashed):
        ask(pool)
    assert pool.tags == []


def test_every_builder_has_some_of_many() -> None:
    assert {choose_builder((number, 1), 3) for number in range(100)} == {0, 1, 2}
