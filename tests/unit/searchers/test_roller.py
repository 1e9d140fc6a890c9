"""The constructor fills vectors, registers and cores of any machine, and tries unlike things."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallorn.core.values.machine import Machine, assume_typical_cpu
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.loop_nest import Access, Axis, Nest, matrix_product_nest
from mallorn.searchers.roller import rank_candidates
from mallorn.searchers.roller.cpu_time_model import LINE_BYTES, Loops, computing_us, load_imbalance, moving_us
from mallorn.searchers.roller.rank_candidates import Constructor, ranked
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch
from mallorn.searchers.synthetic_space import SyntheticSpace

WIDE, NARROW = assume_typical_cpu(cores=2, lanes=16), assume_typical_cpu(cores=2, lanes=8)
UNROLL = Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2, 3), labels=(0, 16, 64, 512), weights=(0.25,) * 4)


def tile(extent: int, width: int) -> Choice:
    return Choice(ChoiceKind.TILE, width, extent=extent, limit=64)


def place(*values: int) -> Choice:
    return Choice(ChoiceKind.LOCATION, 1, values=values)


def sketch(*choices: Choice, trace: str = "[]") -> Sketch:
    return Sketch("key", trace, choices)


MATMUL = sketch(tile(64, 4), tile(512, 4), tile(784, 2), UNROLL)


def best(of: Sketch, machine: Machine, *nests: Nest) -> tuple[int, ...]:
    return ranked([of], nests, machine, 1)[0].decisions


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_matmul_fills_vectors_registers_and_cores(machine: Machine) -> None:
    vector = best(MATMUL, machine)
    rows, columns = vector[:4], vector[4:8]
    sums = rows[3] * columns[3] // machine.lanes
    assert columns[3] % machine.lanes == 0
    assert machine.in_flight <= sums <= machine.registers
    assert rows[0] * columns[0] % machine.cores == 0


@pytest.mark.parametrize("columns", [24, 40, 48, 96])
@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
def test_no_vector_is_longer_than_the_machines_but_for_powers_of_two(columns: int, machine: Machine) -> None:
    """LLVM keeps sums of 24 numbers in memory, not in registers."""
    vector = best(sketch(tile(36, 4), tile(196, 4), tile(columns, 4), tile(96, 2), UNROLL), machine)
    assert vector[11] <= machine.lanes or vector[11] in (16, 32, 64)
    assert 2 * vector[11] >= machine.lanes


def test_where_an_instruction_fills_the_vector_whole_vectors_are_tiled() -> None:
    trace = '[["Annotate", [], ["meta_schedule.auto_tensorize"], []]]'
    dot = sketch(tile(64, 4), tile(32, 4), tile(1, 4), tile(392, 2), tile(1, 2), UNROLL, trace=trace)
    vector = best(dot, WIDE)
    assert vector[8:12] == (1, 1, 1, 1)
    assert WIDE.in_flight <= vector[3] * vector[7] * vector[2] * vector[6] <= WIDE.registers


def test_tiles_that_a_rule_suggests_are_taken_as_they_are() -> None:
    ours = Choice(ChoiceKind.TILE, 3, extent=12, limit=4, suggested=(3, 2, 2))
    for candidate in ranked([sketch(ours, ours, UNROLL)], (), NARROW, 8):
        assert candidate.decisions[:6] == (3, 2, 2, 3, 2, 2)


def test_rows_are_taken_where_they_divide_best() -> None:
    vector = best(sketch(tile(1, 4), tile(49, 4), tile(512, 4), tile(256, 2), UNROLL), NARROW)
    assert vector[7] == 7


def test_rows_that_would_evict_each_other_are_kept_apart() -> None:
    """Of a buffer whose rows are a page apart few can be read side by side."""
    paged, odd = (computing_us(loops(nest), NARROW, 64) for nest in (matmul_of(1024), matmul_of(1040)))
    assert paged[0] / 1024 > 1.5 * odd[0] / 1040


def matmul_of(depth: int) -> Nest:
    return matrix_product_nest((128, 256), (depth,))


def loops(nest: Nest) -> Loops:
    depth = nest.extents[2]
    return Loops(nest, np.array([[1, 8, 1, 16, 1, 32, 1, 8, depth // 16, 16]], dtype=np.int32))


def test_a_reduction_cut_in_two_has_an_inner_part_for_vectors() -> None:
    vectors = {c.decisions[:2] for c in ranked([sketch(tile(49, 2), UNROLL)], (), NARROW, 4)}
    assert vectors == {(7, 7)}


def test_the_first_eight_differ_in_more_than_one_respect() -> None:
    first = [candidate.decisions for candidate in ranked([MATMUL], (), NARROW, 8)]
    assert len({(row[3], row[7]) for row in first}) > 1
    assert len({row[10] for row in first}) > 1
    assert len({row[9] for row in first}) > 1


def test_a_longer_ranking_begins_with_a_shorter_one_and_is_seldom_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Machine] = []

    class Counted(Constructor):
        def __init__(self, nests: Sequence[Nest], machine: Machine) -> None:
            made.append(machine)
            super().__init__(nests, machine)

    monkeypatch.setattr(rank_candidates, "Constructor", Counted)
    machine = assume_typical_cpu(cores=3, lanes=8)
    rounds = [ranked([MATMUL], (), machine, count) for count in range(8, 200, 8)]
    assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(rounds))
    assert [len(found) for found in rounds] == list(range(8, 200, 8))
    assert len(made) <= 3


def test_what_feeds_a_block_is_made_inside_the_loops_that_cores_share_or_beforehand() -> None:
    padded = sketch(tile(64, 4), tile(64, 4), tile(64, 2), UNROLL, place(-2, -1, 0, 1, 3))
    places = {candidate.decisions[-1] for candidate in ranked([padded], (), NARROW, 24)}
    assert places <= {-1, 1, 3}
    assert len(places) > 1


def test_a_chain_of_blocks_is_never_computed_innermost() -> None:
    chain = sketch(place(-1, 1, 3), place(-1, 1, 4))
    assert {c.decisions for c in ranked([chain], (), NARROW, 8)} <= {(a, b) for a in (-1, 1) for b in (-1, 1)}


def test_a_sketch_of_a_million_combinations_gives_no_more_guesses_than_a_ranking_looks_at() -> None:
    two_products = sketch(tile(64, 8), tile(64, 4), tile(64, 8), *[UNROLL] * 10)
    guesses = Constructor((), assume_typical_gpu("sm_90a")).guesses(two_products)
    assert 1024 <= len(guesses.rows) <= 6000
    assert (guesses.rows[0][-10:] == 2).all()  # the usual value of each list


def test_a_sketch_without_choices_is_one_candidate() -> None:
    assert ranked([sketch()], (), NARROW, 8) == [Candidate("key", ())]


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_999"])
def test_a_gpus_block_fits_and_there_is_one_for_every_multiprocessor(arch: str) -> None:
    machine = assume_typical_gpu(arch)
    vector = best(sketch(tile(2048, 5), tile(2048, 5), tile(1024, 3)), machine)
    rows, columns, depth = vector[:5], vector[5:10], vector[10:]
    threads, results = rows[2] * columns[2], prod(rows[i] * columns[i] for i in (1, 3, 4))
    assert threads % machine.lanes == 0
    assert 64 <= threads <= 1024
    assert 16 <= results < 255
    assert (prod(rows[1:]) + prod(columns[1:])) * prod(depth[1:]) * 4 <= 48 << 10
    assert rows[0] * columns[0] >= machine.cores


PIPELINE = '["Annotate",["l4",[0,0,3]],["software_pipeline_stage"],[]]'


@pytest.mark.parametrize("depth", [7, 32, 1024])
def test_a_pipeline_on_a_gpu_has_two_steps_and_room_for_the_tiles_of_all_its_stages(depth: int) -> None:
    machine = assume_typical_gpu("sm_90a")
    pipelined = sketch(tile(2048, 5), tile(2048, 5), tile(depth, 3), trace=f"[{PIPELINE}]")
    vector = best(pipelined, machine)
    rows, columns, (steps, *step) = vector[:5], vector[5:10], vector[10:]
    assert steps > 1
    assert 4 * (prod(rows[1:]) + prod(columns[1:])) * prod(step) * 4 <= 48 << 10


def test_a_window_that_slides_touches_its_border_too() -> None:
    """Four outputs of stride two and a window of three read nine inputs, in whole lines."""
    axes = (Axis(8), Axis(16), Axis(3, reduced=True))
    read = Access((17, 16), (((0, 2), (2, 1)), ((1, 1),)))
    nest = Nest(axes, (read,), Access((8, 16), (((0, 1),), ((1, 1),))))
    tiled = Loops(nest, np.array([[2, 1, 1, 4, 1, 1, 1, 16, 1, 3]], dtype=np.int32))
    assert tiled.bytes_of(read, tiled.cut_after(2)).tolist() == [9 * LINE_BYTES]


def test_a_buffer_is_fetched_once_for_loops_that_do_not_index_it() -> None:
    nest = matrix_product_nest((8, 32), (16,))
    left, right = nest.reads
    tiled = Loops(nest, np.array([[8, 1, 1, 1, 2, 1, 1, 16, 16, 1]], dtype=np.int32))
    inside = tiled.cut_after(2)
    assert tiled.fetches(left)[inside].tolist() == [8]
    assert tiled.fetches(right)[inside].tolist() == [16]


def test_a_tile_that_stays_in_the_cache_moves_less() -> None:
    nest = matrix_product_nest((512, 512), (512,))
    rows = np.array(
        [[1, 128, 1, 4, 1, 16, 1, 32, 1, 512], [8, 1, 16, 4, 1, 16, 1, 32, 8, 64]], dtype=np.int32
    )
    streams, stays = moving_us(Loops(nest, rows), NARROW)[1]
    assert stays < streams


@given(chunks=st.integers(1, 64), cores=st.integers(1, 64))
def test_no_core_has_less_than_its_share(chunks: int, cores: int) -> None:
    nest = matrix_product_nest((64, 16), (8,))
    tiled = Loops(nest, np.array([[chunks, 1, 1, 1, 1, 1, 1, 16, 1, 8]], dtype=np.int32))
    late = load_imbalance(tiled, assume_typical_cpu(cores, 8))[0]
    assert late >= 1
    assert (late == 1) == (chunks % cores == 0)


def test_an_axis_without_small_factors_has_a_first_guess() -> None:
    (candidate,) = ranked([sketch(tile(1643, 4), tile(825, 2), UNROLL)], (), assume_typical_cpu(2, 4), 1)
    assert candidate.decisions[3] == 31, "of 31 and 53, what spills least"


extents = st.integers(1, 3000)
blocks = st.builds(
    lambda spatial, reduction, levels: [
        *(tile(extent, levels[0]) for extent in spatial),
        *(tile(extent, levels[1]) for extent in reduction),
    ],
    st.lists(extents, min_size=1, max_size=4),
    st.lists(extents, max_size=3),
    st.sampled_from([(4, 2), (5, 3)]),
)


@settings(max_examples=40, deadline=None)
@given(block=blocks, cores=st.integers(1, 192), lanes=st.sampled_from([1, 4, 8, 16]))
def test_whatever_is_ranked_is_distinct_and_well_formed(block: list[Choice], cores: int, lanes: int) -> None:
    whole = sketch(*block, UNROLL, place(-1, 1, 2))
    gpu = block[0].width == 5
    candidates = ranked([whole], (), assume_typical_gpu() if gpu else assume_typical_cpu(cores, lanes), 12)
    assert len(set(candidates)) == len(candidates) > 0
    rows = np.array([candidate.decisions for candidate in candidates], dtype=np.int32)
    assert SketchRules(whole).well_formed(rows).all()
    assert all(prod(row[: block[0].width].tolist()) == block[0].extent for row in rows)


def test_guesses_take_what_is_expected_of_them() -> None:
    constructor = Constructor((), assume_typical_cpu(cores=2, lanes=8))
    for sketch in SyntheticSpace(64, 64, 64).sketches:
        guesses = constructor.guesses(sketch)
        us = constructor.time_us(sketch, guesses.rows)
        assert us is not None
        np.testing.assert_allclose(us, guesses.us)
