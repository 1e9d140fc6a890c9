"""What the guided walk expects of candidates that nobody measured."""

import pytest

from mallorn.core.values.machine import Machine, assume_typical_cpu
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import TILED, SyntheticSpace
from mallorn.searchers.testing import TinySpace
from mallorn_research.searchers.guided_walk import log_slowdowns

SPACE = SyntheticSpace(64, 64, 64)


def space_on(machine: Machine) -> SyntheticSpace:
    space = SyntheticSpace(64, 64, 64)
    space.machine = machine
    return space


NARROW = space_on(assume_typical_cpu(cores=4, lanes=4))
GPU = space_on(assume_typical_gpu())


def wide(lanes: int, *, rows: int = 8, unroll: int = 1, place: int = 0) -> Candidate:
    """A candidate of the 64 x 64 x 64 space with that innermost tile."""
    decisions = (64 // rows, 1, 1, rows, 1, 64 // lanes, 1, lanes, 4, 16, unroll, place)
    return Candidate(TILED, decisions)


def test_full_lanes_and_a_good_register_tile_lose_least() -> None:
    good, narrow, lonely, spilling = log_slowdowns(
        SPACE, [wide(16, rows=16), wide(1), wide(16, rows=1), wide(64, rows=64)]
    )
    assert good == 0.0
    assert min(narrow, lonely, spilling) > 0.3


def test_a_machine_of_narrow_vectors_wants_narrow_tiles() -> None:
    tiles = [wide(4, rows=8), wide(16, rows=16)]
    assert log_slowdowns(NARROW, tiles).argmin() == 0
    assert log_slowdowns(SPACE, tiles).argmin() == 1


@pytest.mark.parametrize("space", [TinySpace(), GPU], ids=["no tiles", "a GPU"])
def test_nothing_is_expected_of_what_there_is_no_model_of(space: SyntheticSpace) -> None:
    assert not log_slowdowns(space, space.defaults()).any()
    assert log_slowdowns(space, []).shape == (0,)


def test_the_time_of_a_candidate_does_not_depend_on_its_company() -> None:
    """Unrolling and places are chosen row by row."""
    several = [wide(16, unroll=at, place=place) for at in range(4) for place in (-1, 0, 1)]
    together = log_slowdowns(SPACE, several)
    for one, loss in zip(several, together, strict=True):
        assert log_slowdowns(SPACE, [one, several[0]])[0] == pytest.approx(max(0.0, loss - together[0]))
