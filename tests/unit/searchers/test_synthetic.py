"""The synthetic space keeps the contract of spaces and behaves as a kernel would."""

from collections.abc import Callable

import numpy as np
import pytest

from mallorn.core.outcomes import Outcome
from mallorn.searchers.space import Candidate, Space
from mallorn.searchers.synthetic_space import RFACTOR, TILED, SyntheticSpace
from mallorn.searchers.testing import TinySpace
from tests.kits.spaces import SpaceTestCase


class TestSyntheticSpace(SpaceTestCase):
    @pytest.fixture
    def make_space(self) -> Callable[[], Space]:
        return lambda: SyntheticSpace(64, 96, 50)


class TestTinySpace(SpaceTestCase):
    @pytest.fixture
    def make_space(self) -> Callable[[], Space]:
        return TinySpace


def test_no_candidate_is_faster_than_the_optimum_and_one_reaches_it() -> None:
    space = SyntheticSpace(8, 16, 8)
    drawn = list(dict.fromkeys(space.sample(np.random.default_rng(0), 20_000)))
    assert np.nanmin(space.latency_us(drawn)) == pytest.approx(space.optimum_us)


def test_most_of_the_space_is_slow_and_some_of_it_invalid() -> None:
    space = SyntheticSpace()
    latency = space.latency_us(space.sample(np.random.default_rng(0), 5000))
    assert 0.01 < np.isnan(latency).mean() < 0.3
    assert np.median(latency[np.isfinite(latency)]) > 5 * space.optimum_us


@pytest.mark.parametrize(
    ("sketch", "decisions", "outcome"),
    [
        (TILED, (32, 1, 2, 4, 16, 1, 1, 16, 16, 16, 1, 0), Outcome.OK),
        (RFACTOR, (1, 1, 4, 64, 1, 1, 4, 64, 16, 16, 0, 0), Outcome.BUILD_ERROR),
        (TILED, (4, 1, 1, 64, 16, 1, 1, 16, 32, 8, 3, 0), Outcome.BUILD_TIMEOUT),
    ],
)
def test_a_candidate_ends_as_its_decisions_deserve(
    sketch: str, decisions: tuple[int, ...], outcome: Outcome
) -> None:
    trial = SyntheticSpace().measure(Candidate(sketch, decisions))
    assert trial.outcome is outcome
    assert (trial.latency_us is not None) == (outcome is Outcome.OK)
