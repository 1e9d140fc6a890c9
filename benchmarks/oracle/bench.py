"""Builds candidates and times them on the cores that this process may use: never both at once.

The least of a few timings counts: what else the machine does makes them longer only.
"""

import math
import os
import tempfile
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.oracle.clock import REPEATS, Clock
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.trial import Trial
from mallorn.searchers.base import Proposal
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler, Library
from mallorn.workers.interfaces.model_compiler import ModelTask
from mallorn.workers.subprocesses.errors import ChildError
from mallorn.workers.subprocesses.process_pool import ChildPool

BUILD_SEC = 20.0
MESSAGE_CHARS = 300


class Bench:
    """The candidates of one task on a target."""

    def __init__(self, task: ModelTask, target: Target) -> None:
        self.task = task
        self.target = target
        self.best_us: float | None = None
        self._batch = 0
        # TVM would bind its threads to the first cores of the machine, whoever else is on them.
        env = {"TVM_NUM_THREADS": str(target.num_cores), "TVM_BIND_THREADS": "0"}
        self._stack = ExitStack()
        self.compiler = self._stack.enter_context(CandidateCompiler())
        compiler = partial(CandidateCompiler, max_calls=400)
        builders: ChildPool[Library] = ChildPool(compiler, len(os.sched_getaffinity(0)))
        self._builders = self._stack.enter_context(builders)
        self._clock = self._stack.enter_context(Clock(env=env, max_calls=300))
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="oracle-")))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def measure(self, proposals: Sequence[Proposal], sketches: dict[str, Sketch]) -> list[Trial]:
        """Each of them once."""
        candidates = [each.candidate for each in proposals]
        built = self._build(candidates, sketches)
        return [self._trial(at, proposals[at], end) for at, end in enumerate(built)]

    def again(self, candidates: Sequence[Candidate], sketches: dict[str, Sketch], passes: int) -> list[float]:
        """Candidates in turn, several times over: the least of each; infinite where one fails."""
        built = self._build(candidates, sketches)
        times: list[list[float]] = [[] for _ in candidates]
        for _ in range(passes):
            for at, end in enumerate(built):
                if isinstance(end, Library):
                    with suppress(ChildError):
                        times[at] += self._times(at, end, None)
        return [min(each) if each else math.inf for each in times]

    def _build(self, candidates: Sequence[Candidate], sketches: dict[str, Sketch]) -> list[Library | str]:
        for library in self._folder.iterdir():
            library.unlink()
        self._batch += 1
        waiting = deque(range(len(candidates)))
        ends: dict[int, Library | str] = {}
        while len(ends) < len(candidates):
            while waiting and self._builders.idle:
                at = waiting.popleft()
                each = candidates[at]
                call = CandidateCompiler.build.make_call(
                    self.task.tir,
                    self.target.text,
                    sketches[each.sketch].trace,
                    each.decisions,
                    str(self._artifact(at)),
                    any_size=True,
                )
                self._builders.submit(call.with_limit(BUILD_SEC), at)
            for done in self._builders.poll(1.0):
                ends[int(str(done.tag))] = (
                    done.end if isinstance(done.end, Library) else str(done.end)[:MESSAGE_CHARS]
                )
        return [ends[at] for at in range(len(candidates))]

    def _trial(self, at: int, proposal: Proposal, end: Library | str) -> Trial:
        trial = Trial(proposal.candidate, Outcome.OK, origin=proposal.origin, predicted=proposal.predicted)
        if not isinstance(end, Library):
            return replace(trial, outcome=Outcome.BUILD_ERROR, error=end)
        try:
            taken_us = min(self._times(at, end, self.best_us))
        except ChildError as error:
            return replace(trial, outcome=Outcome.RUN_ERROR, error=str(error)[:MESSAGE_CHARS])
        self.best_us = min(self.best_us or math.inf, taken_us)
        return replace(trial, latency_us=taken_us, run_us=(taken_us,), build_ms=end.build_ms)

    def _times(self, at: int, end: Library, best_us: float | None) -> list[float]:
        args = self.task.args.with_tensors(end.args)
        return self._clock.time(str(self._artifact(at)), args, best_us, REPEATS)

    def _artifact(self, at: int) -> Path:
        """A name that was never used before: a library that is still loaded would answer for its namesake."""
        return self._folder / f"{self._batch}-{at}.so"
