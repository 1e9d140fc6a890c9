"""Search one task with the product's own parts, in this process: no service and no database of a job.

Candidates are proposed by `mallorn.workers.round.propose`, checked and built by the worker's builders, and
ranked by the default cost model, fitted to the trials of the task again as they grow. Chance draws valid
candidates of the same space without looking.
"""

import json
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm

from benchmarks.gpu.cells import Unfinished
from benchmarks.gpu.gpu_turns import SEARCHED, GpuTurns, Run, timing
from benchmarks.gpu.search_places import BY_CHANCE
from benchmarks.gpu.trials import MeasuredCandidate, TrialFile
from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.registry import resolve
from mallorn.core.targets import Target
from mallorn.core.values.decision_log import RoundNotes
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.labels import is_informative, is_time_label, labels
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import Workloads
from mallorn.db.session import Database
from mallorn.db.tables import Base, Round
from mallorn.searchers.base import DEFAULT, RANDOM, Proposal, Trial, proposal_method_of
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.model_compiler import ModelTask
from mallorn.workers.measure.build_candidates import (
    Builds,
    BuiltCandidate,
    lower_in_builders,
    validate_in_builders,
)
from mallorn.workers.measure.measurer_interface import MeasureInput, Program
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.model_import.run import new_workload
from mallorn.workers.round.feature_lookup import FeatureLookup, WorkloadOnTarget
from mallorn.workers.round.loaded_round import LoadedRound, descriptors
from mallorn.workers.round.propose import propose
from mallorn.workers.round.select_cost_model import create_unfitted_model
from mallorn.workers.round.train_cost_model import FIRST_ROWS, GROWTH, MOST_NEW
from mallorn.workers.subprocesses.process_pool import ChildPool

BUILD_SEC: Final = 60.0
_DRAWN: Final = 64  # candidates that chance draws at a time
_MOST_DRAWS: Final = 20  # times that it draws for one round
_POLL_SEC: Final = 0.005
_WAIT_SEC: Final = 0.2


class ProductSearch:
    """The space of one task, with the processes that build and rank its candidates."""

    def __init__(self, task: ModelTask, target: Target, folder: Path, builders: int, round_size: int) -> None:
        """Use `folder` for files of this run."""
        self._task, self._target, self._round_size = task, target, round_size
        self._program = Program(task.key, task.tir, task.args, task.flops)
        self._compiler = CandidateCompiler(name="compiler", room=_made(folder / "compiler"))
        self._folder = _made(folder / "builds")
        make = partial(CandidateCompiler, name="builder", room=self._folder)
        self._builders: ChildPool[Any] = ChildPool(make, builders)
        self._validate = partial(validate_in_builders, self._builders)
        database = Database(f"sqlite:///{folder / 'features.db'}")
        with database.transaction() as session:
            Base.metadata.create_all(session.connection())
            ids = Workloads(session).ensure_many([new_workload(task, tvm.__version__)])
            self._ids = ids[task.key], Targets(session).ensure(target).id
        self._lookup = FeatureLookup(database, self._compiler, partial(lower_in_builders, self._builders))
        self._sketches = self._compiler.design_space(task.tir, target.text)

    @property
    def by_key(self) -> dict[str, Sketch]:
        return {sketch.key: sketch for sketch in self._sketches}

    def close(self) -> None:
        self._builders.close()
        self._compiler.kill()

    def proposals(self, method: str, seed: int, trials: Sequence[Trial], left: int) -> list[Proposal]:
        """Return the next candidates of a method after these trials, at most `left`."""
        if method == BY_CHANCE:
            return self._by_chance(seed, trials, min(left, self._round_size))
        options = JobOptions().with_target_defaults(self._target)
        model = self._model(options.cost_model, trials)
        row = Round(
            workload_id=self._ids[0],
            target_id=self._ids[1],
            size=min(left, self._round_size),
            seed=int(np.random.default_rng([seed, len(trials)]).integers(1 << 31)),
            searcher=options.search,
            reason=RoundNotes(),
        )
        context = LoadedRound(
            row=row,
            task_index=0,
            task_name=self._task.name,
            options=options,
            target=self._target,
            like=None,
            machine=None,
            program=self._program,
            descriptors=descriptors(self._task.flops, self._task.extents),
            history=tuple(trials),
            model=model,
            model_name=None if model is None else options.cost_model,
            model_kind=None if model is None else options.cost_model,
            on_base=False,
            done_slots=frozenset(),
        )
        return propose(self._lookup, context, self._validate).proposals

    def build(self, proposals: Sequence[Proposal], libraries: Path) -> "Builds":
        """Return the builds of those candidates that have no library in `libraries`."""
        sketches = self.by_key
        slots = [
            MeasureInput(slot, proposal.candidate, sketches[proposal.candidate.sketch])
            for slot, proposal in enumerate(proposals)
            if not library_of(libraries, proposal.candidate).exists()
        ]
        return Builds(self._builders, slots, self._program, self._target, self._folder, BUILD_SEC)

    def _by_chance(self, seed: int, trials: Sequence[Trial], size: int) -> list[Proposal]:
        """Return new valid candidates; fewer if the space seems to have no more."""
        arguments = self._sketches, self._program, self._target, (), self._compiler
        space = TvmSpace(*arguments, validate=self._validate)
        rng, seen = np.random.default_rng([seed, len(trials)]), {trial.candidate for trial in trials}
        found: list[Candidate] = []
        for _ in range(_MOST_DRAWS):
            drawn = dict.fromkeys(space.sample(rng, _DRAWN))
            new = [each for each in drawn if each.decisions and each not in seen]
            seen.update(new)
            found += [each for each, is_valid in zip(new, space.valid(new), strict=True) if is_valid]
            if len(found) >= size:
                break
        return [Proposal(candidate, None, RANDOM) for candidate in found[:size]]

    def _model(self, name: str, trials: Sequence[Trial]) -> CostModel | None:
        """Return the cost model fitted to a task's trials, as many as its last training would have seen."""
        rows = 0
        for total in range(FIRST_ROWS, len(trials) + 1):
            if total - rows >= max(FIRST_ROWS, GROWTH * rows) and total % self._round_size == 0:
                rows = total
        if not rows:
            return create_unfitted_model(name, ())
        model: CostModel = resolve("cost_model", name).made_for(None)
        used = [t for t in trials[:rows] if is_informative([t.outcome])[0]]
        group = np.zeros(len(used), dtype=np.int64)
        label = labels([t.latency_us for t in used], group, [t.outcome for t in used])
        work = WorkloadOnTarget(
            *self._ids,
            self._task.tir,
            self._target.text,
            descriptors(self._task.flops, self._task.extents),
            self.by_key,
        )
        found = self._lookup.look_up_features(model.view, work, [t.candidate for t in used], MOST_NEW)
        if np.count_nonzero(is_time_label(label[found.known])) < FIRST_ROWS:
            return create_unfitted_model(name, ())
        model.fit(found.rows[found.known], label[found.known], group[found.known], seed=rows)
        return model


class Trials:
    """Runs the trials of one method: builds what is not built, times it, and stores each result."""

    def __init__(
        self,
        search: ProductSearch,
        gpu: GpuTurns,
        call: Any,
        file: TrialFile,
        libraries: Path,
        target: Target,
    ) -> None:
        self._search, self._gpu, self._call = search, gpu, call
        self._file, self._libraries, self._target = file, libraries, target
        self.waited_sec = 0.0

    def run(self, task: str, method: str, seed: int, trials: int, until_sec: float) -> None:
        """Add trials until the method has `trials`. Raises Unfinished when time is over."""
        known = self._file.of(method, seed)
        base_sec = known[-1].at_sec if known else 0.0
        began_sec = time.monotonic()
        while len(known := self._file.of(method, seed)) < trials:
            if time.monotonic() > until_sec:
                raise Unfinished
            proposals = self._search.proposals(
                method, seed, [each.trial for each in known], trials - len(known)
            )
            if not proposals:
                return
            best_us = min((us for each in known if (us := each.trial.time_us) is not None), default=None)
            builds = self._search.build(proposals, self._libraries)
            try:
                for slot, trial, kernels, run in self._measure(builds, proposals, best_us, until_sec):
                    sketch, proposal = self._search.by_key[trial.candidate.sketch], proposals[slot]
                    self._file.append(
                        MeasuredCandidate(
                            task,
                            self._target.text,
                            method,
                            seed,
                            len(self._file.of(method, seed)),
                            sketch,
                            replace(trial, origin=proposal.origin, predicted=proposal.predicted),
                            kernels,
                            base_sec + time.monotonic() - began_sec,
                            run.held_sec if run else 0.0,
                            library_of(self._libraries, trial.candidate).name,
                        )
                    )
            finally:
                builds.abort()

    def _measure(
        self, builds: Builds, proposals: Sequence[Proposal], best_us: float | None, until_sec: float
    ) -> Iterator[tuple[int, Trial, list[Any], Run | None]]:
        """Yield each candidate's result; one is timed while others are built."""
        ready: deque[tuple[int, float | None, list[Any]]] = deque(
            (slot, *read_build(self._libraries, proposal.candidate))
            for slot, proposal in enumerate(proposals)
            if library_of(self._libraries, proposal.candidate).exists()
        )
        pending: tuple[int, float | None, list[Any], Future[Run]] | None = None
        while ready or pending or builds.has_unfinished:
            if time.monotonic() > until_sec:
                raise Unfinished
            if pending is None and ready:
                slot, build_ms, kernels = ready.popleft()
                library = library_of(self._libraries, proposals[slot].candidate)
                call = timing(self._call, library, best_us, SEARCHED, check=False)
                pending = slot, build_ms, kernels, self._gpu.submit(call)
            for end in (
                builds.poll(_POLL_SEC if pending or ready else _WAIT_SEC) if builds.has_unfinished else ()
            ):
                if isinstance(end, BuiltCandidate):
                    store_build(self._libraries, end)
                    ready.append((end.input.slot, *read_build(self._libraries, end.input.candidate)))
                else:
                    yield end.slot, end.trial, [], None
            if pending and (pending[3].done() or not builds.has_unfinished):
                slot, build_ms, kernels, future = pending
                run, pending = future.result(), None
                self.waited_sec += run.waited_sec
                trial = trial_of(run.answer, proposals[slot].candidate, build_ms)
                best_us = min(trial.time_us or inf, best_us or inf)
                best_us = None if best_us == inf else best_us
                yield slot, trial, kernels, run


def trial_of(answer: Any, candidate: Candidate, build_ms: float | None) -> Trial:
    """Return a device's answer as the trial of a candidate."""
    return Trial(
        candidate,
        Outcome.read(answer["outcome"]),
        run_us=tuple(answer.get("run_us", ())) if answer["outcome"] == "ok" else (),
        build_ms=build_ms,
        error=answer.get("error", ""),
        disturbed=answer.get("disturbed"),
    )


def library_of(libraries: Path, candidate: Candidate) -> Path:
    """Return the file of a candidate's library, whoever proposed it."""
    return libraries / f"{candidate.key}.so"


def store_build(libraries: Path, built: BuiltCandidate) -> None:
    """Move a built library to the others, with its build time and ptxas's figures beside it."""
    library = library_of(libraries, built.input.candidate)
    figures = {"build_ms": built.build_ms, "kernels": [dict(each) for each in built.kernels]}
    library.with_suffix(".json").write_text(json.dumps(figures))
    shutil.move(built.artifact, library)


def read_build(libraries: Path, candidate: Candidate) -> tuple[float | None, list[Any]]:
    """Return the build time and ptxas's figures of a stored library."""
    file = library_of(libraries, candidate).with_suffix(".json")
    figures = json.loads(file.read_text()) if file.exists() else {}
    return figures.get("build_ms"), figures.get("kernels", [])


def is_first_guess(trial: Trial) -> bool:
    """Return whether the space proposed the candidate before any trial."""
    return proposal_method_of(trial.origin) == DEFAULT


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
