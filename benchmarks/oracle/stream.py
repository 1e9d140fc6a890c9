"""Everything that is measured of one task on one target, as JSON lines; goes on where it broke off."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import log2
from pathlib import Path
from typing import Final

from benchmarks.oracle.arms import BATCH, OURS, chance, first, together
from benchmarks.oracle.bench import Bench
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.machine import Machine
from mallorn.core.values.trial import Trial
from mallorn.searchers.base import Proposal
from mallorn.workers.interfaces.model_compiler import ModelTask
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.measure.tvm_space import TvmSpace

ARMS: Final = ("default", "ours", "chance", "together")
TRIALS: Final = 256  # of our search alone, and of chance alone
CONTENDERS: Final = 8  # of each arm, once more
MOST_DEFAULTS: Final = 12
PASSES: Final = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """When a task is done: after so many candidates, or at this time."""

    candidates: int
    until: float  # by time.time()

    def left(self, trials: int) -> bool:
        return trials < self.candidates and time.time() < self.until


@dataclass(frozen=True, slots=True)
class Contest:
    """The best of each arm beside each other; `first_us` is the first guess without any search."""

    first_us: float | None
    best_us: dict[str, float | None]


class Stream:
    """One task on one target: the defaults, our search, chance, then all searchers together.

    A trial's origin begins with its arm: `ours/portfolio:mutation`. An arm knows the defaults and its own
    trials; `together` knows everything.
    """

    def __init__(self, task: ModelTask, target: Target, machine: Machine, path: Path, seed: int) -> None:
        self.task, self.target, self._machine, self._path, self._seed = task, target, machine, path, seed
        self.trials = list(read_trials(path))

    def run(self, plan: Plan) -> Contest:
        """Measure until the plan is fulfilled, then the best of each arm in turn."""
        with Bench(self.task, self.target) as bench:
            space = self._space(bench)
            known = [each.time_us for each in self.trials if each.time_us is not None]
            bench.best_us = min(known, default=None)
            for arm, proposals in self._batches(space, plan):
                self._keep(arm, bench.measure(proposals, space.by_key))
            return self._contest(bench, space)

    def _contest(self, bench: Bench, space: TvmSpace) -> Contest:
        contenders = {arm: self._contenders(arm) for arm in ARMS}
        everybody = list(dict.fromkeys(each for arm in ARMS for each in contenders[arm]))
        times = dict(zip(everybody, bench.again(everybody, space.by_key, PASSES), strict=True))
        best = {arm: min((times[each] for each in contenders[arm]), default=None) for arm in ARMS}
        guesses = contenders["default"]
        return Contest(times[guesses[0]] if guesses else None, best)

    def _space(self, bench: Bench) -> TvmSpace:
        program = Program(self.task.key, self.task.tir, self.task.args, self.task.flops)
        sketches = bench.compiler.design_space(program.tir, self.target.text)
        sizes = (self.task.flops, *self.task.extents)
        descriptors = tuple(log2(1 + size) for size in sizes)
        return TvmSpace(sketches, program, self.target, descriptors, bench.compiler, self._machine)

    def _batches(self, space: TvmSpace, plan: Plan) -> Iterator[tuple[str, list[Proposal]]]:
        if not self.trials:
            yield "default", first(space)
        for arm, propose in (("ours", OURS.propose), ("chance", chance)):
            while len(history := self._of("default", arm)) < TRIALS and plan.left(len(self.trials)):
                found = propose(space, history, min(BATCH, TRIALS - len(history)), self._next_seed())
                if not found:
                    break
                yield arm, found
        for searcher in together():
            found = searcher.propose(space, self._of(*ARMS), 2 * BATCH, self._next_seed())
            if not found or not plan.left(len(self.trials)):
                return
            yield "together", found

    def _next_seed(self) -> int:
        return self._seed * 1_000_003 + len(self.trials)

    def _of(self, *arms: str) -> list[Trial]:
        """As searchers know them: with an origin of their own."""
        mine = [trial for trial in self.trials if trial.origin.partition("/")[0] in arms]
        return [replace(trial, origin=trial.origin.partition("/")[2]) for trial in mine]

    def _contenders(self, arm: str) -> list[Candidate]:
        """The fastest few; of the defaults all that ran, the first guess first."""
        timed = [trial for trial in self._of(arm) if trial.time_us is not None]
        if arm == "default":
            return [trial.candidate for trial in timed[:MOST_DEFAULTS]]
        fastest = sorted(timed, key=lambda trial: trial.time_us or 0.0)
        return [trial.candidate for trial in fastest[:CONTENDERS]]

    def _keep(self, arm: str, trials: Sequence[Trial]) -> None:
        with self._path.open("a") as lines:
            for trial in trials:
                named = replace(trial, origin=f"{arm}/{trial.origin}")
                self.trials.append(named)
                lines.write(json.dumps(asdict(named)) + "\n")


def read_trials(path: Path) -> Iterator[Trial]:
    """What a stream kept."""
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        candidate = Candidate(row["candidate"]["sketch"], tuple(row["candidate"]["decisions"]))
        known = {"candidate": candidate, "outcome": Outcome(row["outcome"]), "run_us": tuple(row["run_us"])}
        yield Trial(**(row | known))
