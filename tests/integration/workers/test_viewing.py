"""Lowered views come from a compiler once, then from the cache; what cannot be lowered is said to be so."""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pytest

from mallorn.costmodels.views import CODE, EXECUTED, LOOPS, STATEMENTS, VIEWS, Count
from mallorn.db.session import Database
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.host import code_digest
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler, Candidates
from mallorn.workers.round.feature_lookup import GENERATED_PER_CALL, FeatureLookup, WorkloadOnTarget
from mallorn.workers.subprocesses.errors import (
    ChildCrashed,
    ChildError,
    ChildFailed,
    ChildKilled,
    ChildNotStarted,
    ChildOutOfMemory,
    ChildStarved,
    ChildTimeout,
)
from tests.fixtures.inside import Inside
from tests.fixtures.rows import Rows
from tests.unit.tvm_space.programs import TARGET, matmul

CRASHED = ChildCrashed("died of SIGSEGV")


class Counting(Inside, CandidateCompiler):
    """Counts the candidates that a compiler, if there is one, is asked about; dies of some, if told to."""

    def __init__(
        self,
        compiler: CandidateCompiler | None = None,
        deadly: Collection[tuple[int, ...]] = (),
        error: ChildError = CRASHED,
    ) -> None:
        super().__init__()
        self.compiler = compiler
        self.deadly = deadly
        self.error = error
        self.asked: Counter[str] = Counter()

    def told(self, _method: str) -> Any:
        def lower(view: str, tir: str, target: str, candidates: Candidates) -> list[bytes | None]:
            self.asked[view] += len(candidates)
            if any(tuple(decisions) in self.deadly for _, decisions in candidates):
                raise self.error
            if self.compiler is None:
                return [bytes(4 * VIEWS[view].width)] * len(candidates)
            return self.compiler.compute_lowered_features(view, tir, target, candidates)

        return lower


@pytest.fixture(scope="module")
def compiler() -> Iterator[CandidateCompiler]:
    with CandidateCompiler() as child:
        yield child


def work(rows: Rows, sketches: dict[str, Sketch], tir: str = "{}") -> WorkloadOnTarget:
    return WorkloadOnTarget(
        rows.workloads["w0"], rows.target_id, tir, TARGET, (17.6, 5.0, 6.0, 5.6), sketches
    )


def some(sketch: Sketch) -> list[Candidate]:
    decisions = [(4, 2, 2, 2, 8, 1, 1, 8, 12, 4, 1), (2, 2, 2, 4, 4, 1, 1, 16, 48, 1, 3)]
    return [Candidate(sketch.key, each) for each in decisions]


def test_a_real_compiler_is_asked_once(rows: Rows, database: Database, compiler: CandidateCompiler) -> None:
    sketches = compiler.design_space(matmul(), TARGET)
    of = work(rows, {sketch.key: sketch for sketch in sketches}, matmul())
    counting = Counting(compiler)
    for view in (STATEMENTS, CODE, EXECUTED):
        first = FeatureLookup(database, counting).look_up_features(view.name, of, some(sketches[-1]))
        again = FeatureLookup(database, counting).look_up_features(view.name, of, some(sketches[-1])[::-1])
        assert first.known.all()
        assert first.rows.shape == (2, view.width)
        assert np.isfinite(first.rows).all()
        assert not np.array_equal(*first.rows)
        np.testing.assert_array_equal(again.rows, first.rows[::-1])
    assert counting.asked == {"statements": 2, "code": 2, "executed": 2}
    present = STATEMENTS.tables(
        FeatureLookup(database, counting).look_up_features("statements", of, some(sketches[-1])).rows
    )
    assert present[:, :, 0].sum(axis=1).tolist() == [2, 2], "the product and its rectifier"


def test_counts_of_the_code_are_scaled_to_what_the_program_computes(
    rows: Rows, database: Database, compiler: CandidateCompiler
) -> None:
    sketches = compiler.design_space(matmul(), TARGET)
    of = work(rows, {sketch.key: sketch for sketch in sketches}, matmul())
    seen = FeatureLookup(database, compiler).rows("executed", of, some(sketches[-1]))
    counts = np.exp2(seen.astype(np.float64)) - 1
    m, n, k = 32, 64, 48
    computed = 2 * counts[:, Count.PRODUCTS] + counts[:, Count.SIMPLE]
    np.testing.assert_allclose(computed, 2 * m * n * k, rtol=0.05)
    assert (counts[:, Count.LOADS] > counts[:, Count.STORES]).all()


def test_what_cannot_be_had_is_no_number_for_a_space(rows: Rows, database: Database) -> None:
    sketch = Sketch("s", "[]", ())
    good, deadly = Candidate("s", (0,)), Candidate("s", (1,))
    counting = Counting(deadly=frozenset({deadly.decisions}))
    seen = FeatureLookup(database, counting).rows("executed", work(rows, {"s": sketch}), [good, deadly])
    assert np.isnan(seen).all(axis=1).tolist() == [False, True]


def test_a_candidate_that_kills_the_compiler_is_not_tried_again(rows: Rows, database: Database) -> None:
    sketch = Sketch("s", "[]", ())
    good, deadly, other = (Candidate("s", (number,)) for number in range(3))
    counting = Counting(deadly=frozenset({deadly.decisions}))
    seen = FeatureLookup(database, counting).look_up_features(
        "code", work(rows, {"s": sketch}), [good, deadly, other]
    )
    assert seen.known.tolist() == [True, False, True]
    asked = counting.asked.total()
    FeatureLookup(database, counting).look_up_features(
        "code", work(rows, {"s": sketch}), [good, deadly, other]
    )
    assert counting.asked.total() == asked


def test_what_does_not_fit_its_sketch_is_not_known(
    rows: Rows, database: Database, compiler: CandidateCompiler
) -> None:
    sketches = compiler.design_space(matmul(), TARGET)
    of = work(rows, {sketch.key: sketch for sketch in sketches}, matmul())
    wrong = Candidate(sketches[0].key, (4, 2, 2, 2, 8, 1, 1, 8, 12, 4, 1, 9))
    seen = FeatureLookup(database, compiler).look_up_features("statements", of, [wrong])
    assert seen.known.tolist() == [False]
    assert not seen.rows.any()


def test_no_more_new_candidates_are_lowered_than_allowed(rows: Rows, database: Database) -> None:
    sketch, counting = Sketch("s", "[]", ()), Counting()
    many = [Candidate("s", (number,)) for number in range(3 * GENERATED_PER_CALL)]
    seen = FeatureLookup(database, counting).look_up_features(
        "code", work(rows, {"s": sketch}), many, most_new=5
    )
    assert seen.known.tolist() == [True] * 5 + [False] * (len(many) - 5)
    assert counting.asked["code"] == 5


def test_a_view_of_decisions_alone_asks_nobody(rows: Rows, database: Database) -> None:
    sketch, counting = Sketch("s", "[]", ()), Counting()
    seen = FeatureLookup(database, counting).look_up_features(
        LOOPS.name, work(rows, {"s": sketch}), [Candidate("s", ())]
    )
    assert seen.known.all()
    assert not counting.asked


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ChildOutOfMemory("took more memory than there is"), id="out of memory"),
        pytest.param(ChildKilled("died of SIGKILL"), id="killed"),
        pytest.param(ChildTimeout("took longer than 30 s"), id="time-out"),
        pytest.param(ChildStarved("took longer than 30 s"), id="starved"),
        pytest.param(ChildNotStarted("did not start"), id="not started"),
        pytest.param(ChildFailed("MemoryError", ""), id="memory limit"),
        pytest.param(ChildCrashed("died of SIGABRT\nterminate called: std::bad_alloc"), id="bad_alloc"),
    ],
)
def test_what_the_host_may_be_at_fault_for_is_asked_again_by_the_next_process(
    rows: Rows, database: Database, error: ChildError
) -> None:
    sketch, candidate = Sketch("s", "[]", ()), Candidate("s", (0,))
    sick, well = Counting(deadly=[candidate.decisions], error=error), Counting()
    for _ in range(2):
        seen = FeatureLookup(database, sick).look_up_features("code", work(rows, {"s": sketch}), [candidate])
        assert seen.known.tolist() == [False]
    assert sick.asked.total() == 1, "this process knows by now"
    with Database(database.url) as of_the_next_process:
        seen = FeatureLookup(of_the_next_process, well).look_up_features(
            "code", work(rows, {"s": sketch}), [candidate]
        )
    assert seen.known.tolist() == [True]


@pytest.mark.parametrize(
    "error",
    [ChildFailed("InternalError", "cannot lower"), ChildCrashed("died of SIGSEGV")],
    ids=["raises", "dies"],
)
def test_what_a_candidate_does_to_one_builder_is_asked_of_the_next(
    rows: Rows, database: Database, monkeypatch: pytest.MonkeyPatch, error: ChildError
) -> None:
    sketch, candidate = Sketch("s", "[]", ()), Candidate("s", (0,))
    of = work(rows, {"s": sketch})
    FeatureLookup(database, Counting(deadly=[candidate.decisions], error=error)).look_up_features(
        "code", of, [candidate]
    )
    mended = Counting()
    with Database(database.url) as of_the_next_process:
        assert (
            not FeatureLookup(of_the_next_process, mended)
            .look_up_features("code", of, [candidate])
            .known.any()
        )
        assert mended.asked.total() == 0
        monkeypatch.setattr(code_digest, "code_parts", lambda: {"graphc": "another"})
        assert (
            FeatureLookup(of_the_next_process, mended).look_up_features("code", of, [candidate]).known.all()
        )
    assert mended.asked.total() == 1
