"""Laws of tiles: factors multiply up, the innermost stays within its limit, a move touches two loops."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mallorn.searchers.space import Choice, ChoiceKind
from mallorn.searchers.tile_factorizations import TileRule, compositions, divisors, prime_powers, tilings

EXTENTS = st.integers(1, 4096)
WIDTHS = st.integers(1, 5)
LIMITS = st.sampled_from([0, 1, 4, 64])
SEEDS = st.integers(0, 2**16)


def rule(extent: int, width: int, limit: int) -> TileRule:
    return TileRule(Choice(ChoiceKind.TILE, width, extent=extent, limit=limit))


@given(EXTENTS)
def test_prime_powers_multiply_up(extent: int) -> None:
    assert np.prod([prime**power for prime, power in prime_powers(extent)], dtype=np.int64) == extent


@given(EXTENTS)
def test_divisors_are_all_numbers_that_divide(extent: int) -> None:
    assert divisors(extent) == [number for number in range(1, extent + 1) if extent % number == 0]


@given(st.integers(0, 8), WIDTHS)
def test_compositions_are_all_distinct_sums(total: int, parts: int) -> None:
    rows = compositions(total, parts)
    assert (rows >= 0).all()
    assert (rows.sum(axis=1) == total).all()
    assert len({tuple(row) for row in rows}) == len(rows) == len(compositions(total, parts))


@given(EXTENTS, st.integers(2, 5), LIMITS, SEEDS)
def test_samples_are_well_formed(extent: int, width: int, limit: int, seed: int) -> None:
    rows = rule(extent, width, limit).sample(np.random.default_rng(seed), 50)
    assert (rows.prod(axis=1) == extent).all()
    assert not limit or (rows[:, -1] <= limit).all()
    assert rule(extent, width, limit).well_formed(rows).all()


@given(EXTENTS, WIDTHS, LIMITS, SEEDS)
def test_a_move_changes_two_loops_and_keeps_the_product(
    extent: int, width: int, limit: int, seed: int
) -> None:
    tile = rule(extent, width, limit)
    if tile.has_alternatives:
        before = tile.sample(np.random.default_rng(seed), 30)
        after = tile.mutate(np.random.default_rng(seed), before)
        assert ((before != after).sum(axis=1) == 2).all()
        assert tile.well_formed(after).all()


@given(st.integers(1, 64), WIDTHS, LIMITS)
def test_mutable_means_that_there_is_another_tiling(extent: int, width: int, limit: int) -> None:
    allowed = [row for row in tilings(extent, width) if not limit or row[-1] <= limit]
    if width > 1:
        assert rule(extent, width, limit).has_alternatives == (len(allowed) > 1)


@given(st.integers(1, 64), st.sampled_from([2, 4, 6]), SEEDS)
def test_inner_factors_multiply_to_a_multiple_whatever_is_drawn_moved_or_repaired(
    times: int, multiple: int, seed: int
) -> None:
    choice = Choice(ChoiceKind.TILE, 5, extent=times * multiple, inner_multiple=(3, multiple))
    tile, rng = TileRule(choice), np.random.default_rng(seed)
    drawn = tile.sample(rng, 30)
    for rows in (drawn, tile.mutate(rng, drawn), tile.repair(tilings(choice.extent, 5)[:1000])):
        assert (rows.prod(axis=1) == choice.extent).all()
        assert (rows[:, 3:].prod(axis=1) % multiple == 0).all()
    assert not tile.well_formed(np.array([[choice.extent, 1, 1, 1, 1]], dtype=np.int32)).any()


def test_sampling_is_uniform_over_factorisations() -> None:
    rows = rule(12, 3, 0).sample(np.random.default_rng(0), 18_000)
    counts = Counter(map(tuple, rows.tolist()))
    assert set(counts) == set(map(tuple, tilings(12, 3).tolist()))
    assert max(counts.values()) < 1.25 * min(counts.values())


def test_moves_reach_every_tiling() -> None:
    tile, reached = rule(24, 3, 8), np.array([[24, 1, 1]], dtype=np.int32)
    for seed in range(12):
        grown = tile.mutate(np.random.default_rng(seed), np.repeat(reached, 8, axis=0))
        reached = np.unique(np.vstack([reached, grown]), axis=0)
    assert len(reached) == sum(row[-1] <= 8 for row in tilings(24, 3))


def test_malformed_tiles_are_told_apart() -> None:
    rows = np.array([[2, 3, 4], [2, 3, 5], [-2, -3, 4], [1, 1, 24]], dtype=np.int32)
    assert rule(24, 3, 8).well_formed(rows).tolist() == [True, False, False, False]
