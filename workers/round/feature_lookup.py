"""Candidates in the view that a cost model reads: at once, or from the cache, or from a compiler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Matrix
from costmodels.views import CODE, EXECUTED, LAUNCH, STATEMENTS, VIEWS
from db.repositories.feature_cache import Features, ViewOf
from db.session import Database
from mallorn.core.registry import resolve
from searchers.space import Candidate, Sketch
from workers.interfaces.candidate_compiler import CandidateCompiler
from workers.subprocesses.crash_retry_and_advice import lacks_memory
from workers.subprocesses.errors import HOSTS_DOING, ChildCrashed, ChildError, ChildFailed
from workers.tvm.code_digest import builder

# The views that a compiler fills, and for how many candidates it is asked at once.
LOWERED: Final = {STATEMENTS.name: 32, CODE.name: 4, EXECUTED.name: 4, LAUNCH.name: 4}
# What this process asked for in vain, by database: it is not asked again, and not stored.
_unanswered: WeakKeyDictionary[Database, set[tuple[ViewOf, str]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class WorkloadOnTarget:
    """A workload on a target: what candidates are candidates of."""

    workload_id: int
    target_id: int
    tir: str
    target: str
    descriptors: tuple[float, ...]
    sketches: Mapping[str, Sketch]


class FeatureRows(NamedTuple):
    """One row a candidate; `known` says which could be had, the others are zero."""

    rows: Matrix
    known: NDArray[np.bool_]


class FeatureLookup:
    """Fills any view. What a compiler had to answer is stored at once, so that it is asked only once."""

    def __init__(self, database: Database, compiler: CandidateCompiler) -> None:
        self.database = database
        self.compiler = compiler

    def see(
        self, view: str, work: WorkloadOnTarget, candidates: Sequence[Candidate], most_new: int | None = None
    ) -> FeatureRows:
        """The candidates in this view; of a lowered one, at most `most_new` that nobody has seen before."""
        if view not in LOWERED:
            rows = resolve("features", view)().extract(work.sketches, work.descriptors, candidates)
            return FeatureRows(rows, np.ones(len(candidates), dtype=np.bool_))
        shape = VIEWS[view]
        by_key = {candidate.key: candidate for candidate in candidates}
        of = ViewOf(work.workload_id, work.target_id, view, shape.version, builder())
        with self.database.session() as session:
            found = Features(session).known(of, list(by_key))
        in_vain = _unanswered.setdefault(self.database, set())
        new = [key for key in by_key if key not in found and (of, key) not in in_vain]
        missing = [by_key[key] for key in new[:most_new]]
        batch = LOWERED[view]
        for start in range(0, len(missing), batch):
            asked = missing[start : start + batch]
            fresh = self._ask(view, work, asked)
            with self.database.transaction() as session:
                Features(session).keep(of, fresh)
            found |= fresh
            in_vain.update((of, each.key) for each in asked if each.key not in fresh)
        rows = np.zeros((len(candidates), shape.width), dtype=np.float32)
        known = np.zeros(len(candidates), dtype=np.bool_)
        for at, candidate in enumerate(candidates):
            if (row := found.get(candidate.key)) is not None:
                rows[at], known[at] = np.frombuffer(row, dtype="<f4"), True
        return FeatureRows(rows, known)

    def rows(self, view: str, work: WorkloadOnTarget, candidates: Sequence[Candidate]) -> Matrix:
        """The same as a space answers: NaN for what could not be had."""
        seen = self.see(view, work, candidates)
        return np.where(seen.known[:, None], seen.rows, np.float32(np.nan))

    def _ask(
        self, view: str, work: WorkloadOnTarget, candidates: Sequence[Candidate]
    ) -> dict[str, bytes | None]:
        """Ask the compiler for all at once, and for each alone where one of them kills it.

        None: the compiler answered that a candidate cannot be lowered, or the candidate crashes it. What the
        host may be at fault for has no entry, and is asked again by the next process.
        """
        traced = [(work.sketches[each.sketch].trace, each.decisions) for each in candidates]
        try:
            packed = self.compiler.lowered(view, work.tir, work.target, traced)
        except ChildError as error:
            if len(candidates) == 1:
                return {candidates[0].key: None} if _is_candidates(error) else {}
            return {key: row for each in candidates for key, row in self._ask(view, work, [each]).items()}
        return {each.key: row for each, row in zip(candidates, packed, strict=True)}


def _is_candidates(error: ChildError) -> bool:
    """Return whether a candidate alone is to blame: neither its host nor the time and memory that it has."""
    if lacks_memory(error) or isinstance(error, HOSTS_DOING):
        return False
    return isinstance(error, (ChildFailed, ChildCrashed))
