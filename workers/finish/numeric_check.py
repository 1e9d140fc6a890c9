"""Check on a device that a scheduled program has the same outputs as the unscheduled one."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.workers.device.device_class import DeviceClass
from mallorn.workers.interfaces.device_runner import LibraryRun
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.interfaces.output_comparison import Reference
from mallorn.workers.measure.measurer_interface import MeasureInput, Program
from mallorn.workers.measure.tracked_devices import of_class
from mallorn.workers.measure.tvm_measurer import LEAST_SPREAD
from mallorn.workers.process.leased_work import StageFolder
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.subprocesses.errors import ChildError, retry_after_crash

INVALID: Final = "the schedule can no longer be rebuilt"
SEED: Final = 20_260_101
RUN_TIMEOUT_SEC: Final = 60.0


@dataclass(frozen=True, slots=True)
class NumericCheck:
    """Result of the numeric check of one candidate.

    WRONG_RESULT means that outputs differ; other failures, that the check itself failed. OK
    without `max_error` means that no outputs were compared.
    """

    outcome: Outcome
    trace: str = ""
    max_error: float | None = None
    words: str = ""

    @property
    def has_passed(self) -> bool:
        return not self.outcome.failed


@dataclass(eq=False)
class Checker(ABC):
    """Decides whether a winner may be exported."""

    runtime: Runtime
    target: Target

    @abstractmethod
    def verify(self, program: Program, slot: MeasureInput) -> NumericCheck:
        """Check one candidate. Raises Unavailable if the device is lost meanwhile."""

    def complete_trace(self, program: Program, slot: MeasureInput) -> str | None:
        """Return the candidate's complete trace; None if it can no longer be rebuilt."""
        return retry_after_crash(
            lambda: self.runtime.compiler.full_trace(
                program.tir, self.target.text, slot.sketch.trace, slot.candidate.decisions
            )
        )


class Unchecked(Checker):
    """Accepts every winner whose trace can be rebuilt, for use without a device."""

    def verify(self, program: Program, slot: MeasureInput) -> NumericCheck:
        try:
            trace = self.complete_trace(program, slot)
        except ChildError as error:
            return NumericCheck(Outcome.BUILD_ERROR, words=error.message)
        if trace is None:
            return NumericCheck(Outcome.BUILD_ERROR, words=INVALID)
        return NumericCheck(Outcome.OK, trace)


@dataclass(eq=False)
class Verifier(Checker):
    """Runs winners on a device with random inputs; compares with the unscheduled program."""

    graphs: ModelCompiler
    folder: StageFolder
    like: DeviceClass | None = None
    _references: dict[str, Reference] = field(default_factory=dict, init=False)

    def verify(self, program: Program, slot: MeasureInput) -> NumericCheck:
        """Check one candidate on a device. Its failure is overruled if two other devices
        both pass the candidate; under LEAST_SPREAD devices, the first result is final."""
        try:
            reference = self.write_reference(program)
        except ChildError as error:
            words = f"the reference outputs could not be computed: {error.message}"
            return NumericCheck(Outcome.WORKER_LOST, words=words)
        try:
            trace = self.build(program, slot)
        except ChildError as error:
            return NumericCheck(Outcome.BUILD_ERROR, words=error.message)
        if trace is None:
            return NumericCheck(Outcome.BUILD_ERROR, words=INVALID)
        verdict = self._run_and_compare(program, slot, trace, reference)
        devices = of_class(self.runtime.fleet.devices(self.target), self.like)
        if verdict.has_passed or len(devices) < LEAST_SPREAD:
            return verdict
        verdicts = []
        for _ in range(2):
            self.runtime.runner.release_devices()  # the next run then leases another device
            verdicts.append(self._run_and_compare(program, slot, trace, reference))
        first, second = verdicts
        return first if first.has_passed and second.has_passed else verdict

    def write_reference(self, program: Program) -> Reference:
        """Write the files `inputs` and `expected` of a program, once. Raises ChildError."""
        if program.key not in self._references:
            files = [str(self.file(program, content)) for content in ("inputs", "expected")]
            compute = partial(self.graphs.write_reference, program.tir, program.args, SEED, *files)
            self._references[program.key] = retry_after_crash(compute)
        return self._references[program.key]

    def build(self, program: Program, slot: MeasureInput) -> str | None:
        """Build a candidate as a whole program. Return its complete trace; None if it can
        no longer be rebuilt. Raises ChildError."""
        trace = self.complete_trace(program, slot)
        if trace is not None:
            target, library = self.target.text, str(self.library(program))
            retry_after_crash(partial(self.graphs.build_whole_program, program.tir, trace, target, library))
        return trace

    def _run_and_compare(
        self, program: Program, slot: MeasureInput, trace: str, reference: Reference
    ) -> NumericCheck:
        try:
            run = retry_after_crash(partial(self._run, program, slot))
        except ChildError as error:
            return NumericCheck(Outcome.RUN_ERROR, trace, words=error.message)
        if run.outcome.failed:
            return NumericCheck(run.outcome, trace, words=run.error)
        outputs, expected = str(self._outputs(program)), str(self.file(program, "expected"))
        comparison = self.graphs.compare_outputs(outputs, expected, reference)
        outcome = Outcome.OK if comparison.ok else Outcome.WRONG_RESULT
        return NumericCheck(outcome, trace, comparison.max_error, comparison.description)

    def _run(self, program: Program, slot: MeasureInput) -> LibraryRun:
        runner, tracker = self.runtime.runner, self.runtime.settings.tracker
        # Lease the device first: waiting for it must not count against the run's timeout.
        runner.take_device(tracker, self.target.text, hold=True, like=self.like)
        return runner.run_and_save_arrays(
            tracker=tracker,
            target=self.target.text,
            artifact=str(self.library(program)),
            inputs=str(self.file(program, "inputs")),
            outputs=str(self._outputs(program)),
            candidate_key=f"{program.key[:16]}/{slot.candidate.key}/check",
            timeout_sec=RUN_TIMEOUT_SEC,
        )

    def library(self, program: Program) -> Path:
        """Return the path of the library that was built last."""
        return self.file(program, "library").with_suffix(".so")

    def file(self, program: Program, content: str) -> Path:
        return self.folder.compiler_folder / f"{program.key[:16]}-{content}.npz"

    def _outputs(self, program: Program) -> Path:
        return self.folder.answers / f"{program.key[:16]}-outputs.npz"
