"""Compute features for cost models: from decisions, from a cache, or by lowering."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mallorn.core.registry import REGISTRY, resolve
from mallorn.costmodels.base import Matrix
from mallorn.costmodels.views import VIEWS
from mallorn.db.repositories.cost_models import Features, FeatureSource
from mallorn.db.session import Database
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.host.code_digest import current_code_name
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler, Candidates
from mallorn.workers.subprocesses.errors import (
    HOSTS_DOING,
    ChildCrashed,
    ChildError,
    ChildFailed,
    is_out_of_memory,
)

LOWERED: Final = REGISTRY["lowered_features"]  # the views that need lowering
# Candidates per call of the compiler.
LOWERED_PER_CALL: Final = 32
GENERATED_PER_CALL: Final = 4
PARALLEL_CALLS: Final = 8  # that are made together if builders compute features
# As CandidateCompiler.compute_lowered_features.
Lower = Callable[[str, str, str, Candidates], list[bytes | None]]
# Per database: features that the compiler failed to compute. This process does not ask again.
_unanswered: WeakKeyDictionary[Database, set[tuple[FeatureSource, str]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class WorkloadOnTarget:
    """A workload and a target, with what its candidates' features are computed from."""

    workload_id: int
    target_id: int
    tir: str
    target: str
    descriptors: tuple[float, ...]
    sketches: Mapping[str, Sketch]


class FeatureRows(NamedTuple):
    """Feature rows, one per candidate; `known` marks those computed, others are zero."""

    rows: Matrix
    known: NDArray[np.bool_]


class FeatureLookup:
    """Computes features of candidates, and caches in the database those of lowered code."""

    def __init__(self, database: Database, compiler: CandidateCompiler, lower: Lower | None = None) -> None:
        """Create a lookup; `lower` computes features in place of the compiler."""
        self.database = database
        self.compiler = compiler
        self._lower: Lower = lower or compiler.compute_lowered_features
        self._calls = 1 if lower is None else PARALLEL_CALLS

    def look_up_features(
        self, view: str, work: WorkloadOnTarget, candidates: Sequence[Candidate], most_new: int | None = None
    ) -> FeatureRows:
        """Return the candidates' features in a view (set of features). Of those that are
        not in the cache, lower at most `most_new`."""
        if view not in LOWERED:
            rows = resolve("features", view)().extract(work.sketches, work.descriptors, candidates)
            return FeatureRows(rows, np.ones(len(candidates), dtype=np.bool_))
        shape = VIEWS[view]
        by_key = {candidate.key: candidate for candidate in candidates}
        source = FeatureSource(work.workload_id, work.target_id, view, shape.version, current_code_name())
        with self.database.session() as session:
            found = Features(session).read(source, list(by_key))
        failed = _unanswered.setdefault(self.database, set())
        new = [key for key in by_key if key not in found and (source, key) not in failed]
        missing = [by_key[key] for key in new[:most_new]]
        chunk_size = self._calls * (GENERATED_PER_CALL if shape.needs_code else LOWERED_PER_CALL)
        for start in range(0, len(missing), chunk_size):
            chunk = missing[start : start + chunk_size]
            fresh = self._lower_candidates(view, work, chunk)
            with self.database.transaction() as session:
                Features(session).store(source, fresh)
            found |= fresh
            failed.update((source, each.key) for each in chunk if each.key not in fresh)
        rows = np.zeros((len(candidates), shape.width), dtype=np.float32)
        is_known = np.zeros(len(candidates), dtype=np.bool_)
        for index, candidate in enumerate(candidates):
            if (row := found.get(candidate.key)) is not None:
                rows[index], is_known[index] = np.frombuffer(row, dtype="<f4"), True
        return FeatureRows(rows, is_known)

    def rows(self, view: str, work: WorkloadOnTarget, candidates: Sequence[Candidate]) -> Matrix:
        """Return candidates' features in a view; rows that cannot be computed are NaN."""
        features = self.look_up_features(view, work, candidates)
        return np.where(features.known[:, None], features.rows, np.float32(np.nan))

    def _lower_candidates(
        self, view: str, work: WorkloadOnTarget, candidates: Sequence[Candidate]
    ) -> dict[str, bytes | None]:
        """Lower the candidates together or, if that fails, one by one; return rows by key.

        A row is None if the candidate cannot be lowered or crashes the compiler. A candidate
        whose failure may be the host's fault has no entry; another process tries it again.
        """
        traced = [(work.sketches[each.sketch].trace, each.decisions) for each in candidates]
        try:
            packed = self._lower(view, work.tir, work.target, traced)
        except ChildError as error:
            if len(candidates) == 1:
                if is_out_of_memory(error) or isinstance(error, HOSTS_DOING):
                    return {}  # the host or a limit of time or memory is to blame
                return {candidates[0].key: None} if isinstance(error, (ChildFailed, ChildCrashed)) else {}
            return {k: row for c in candidates for k, row in self._lower_candidates(view, work, [c]).items()}
        return {each.key: row for each, row in zip(candidates, packed, strict=True)}
