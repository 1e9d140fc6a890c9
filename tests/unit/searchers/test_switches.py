"""A learner with its learning switched off teaches nothing to anything, and still proposes."""

from typing import Any

import numpy as np
import pytest

from mallorn.costmodels.random import RandomModel
from mallorn.searchers.algorithms.reinforce import Reinforce
from mallorn.searchers.base import Searcher
from mallorn.searchers.learning.knobs import KnobDistributions
from mallorn.searchers.synthetic_space import SyntheticSpace


def proposed(searcher: Searcher) -> int:
    space = SyntheticSpace(64, 64, 64)
    known = [space.measure(each) for each in dict.fromkeys(space.sample(np.random.default_rng(0), 40))]
    return len(searcher.propose(space, known, RandomModel(), 16, np.random.default_rng(1)))


class Taught(Exception):
    """Parameters were stored."""


def teach(*_lesson: Any) -> None:
    raise Taught


def check_learning_switch(kind: type[Any], part: type, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a searcher trains this part of it, unless its learning is switched off."""
    monkeypatch.setattr(part, method, teach)
    with pytest.raises(Taught):
        proposed(kind())
    assert proposed(kind(learning=False)) == 16


def test_without_learning_no_lesson_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    check_learning_switch(Reinforce, KnobDistributions, "learn", monkeypatch)
