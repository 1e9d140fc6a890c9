"""Check on a device that a scheduled program has the same outputs as the unscheduled one."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from workers.device.device_class import DeviceClass
from workers.finish.numeric_checker import INVALID, Checker, NumericCheck
from workers.interfaces.device_runner import LibraryRun
from workers.interfaces.model_compiler import ModelCompiler, Reference
from workers.measure.base import MeasureInput, Program
from workers.measure.tracked_devices import of_class
from workers.measure.tvm_measurer import LEAST_SPREAD
from workers.process.leased_stage import StageFolder
from workers.process.worker_runtime import Runtime
from workers.subprocesses.errors import ChildError, twice

SEED: Final = 20_260_101
RUN_TIMEOUT_SEC: Final = 60.0


class Verifier(Checker):
    """Runs winners on a device with random inputs, and compares with the unscheduled program."""

    def __init__(
        self,
        runtime: Runtime,
        target: Target,
        graphs: ModelCompiler,
        folder: StageFolder,
        like: DeviceClass | None = None,
    ) -> None:
        super().__init__(runtime, target)
        self._runner = runtime.runner
        self._fleet = runtime.fleet
        self._tracker = runtime.settings.tracker
        self._graphs = graphs
        self._folder = folder
        self._like = like
        self._references: dict[str, Reference] = {}

    def verify(self, program: Program, slot: MeasureInput) -> NumericCheck:
        try:
            reference = twice(lambda: self._reference(program))
        except ChildError as error:
            return NumericCheck(Outcome.WORKER_LOST, words=f"nothing to compare with: {error.message}")
        try:
            trace = self.trace(program, slot)
            if trace is None:
                return NumericCheck(Outcome.BUILD_ERROR, words=INVALID)
            library = self._library(program)
            build = partial(self._graphs.build_whole, program.tir, trace, self._target.text, str(library))
            twice(build)
        except ChildError as error:
            return NumericCheck(Outcome.BUILD_ERROR, words=error.message)
        verdict = self._answer(program, slot, trace, reference)
        return verdict if verdict.ok else self._overruled(verdict, program, slot, reference)

    def _answer(self, program: Program, slot: MeasureInput, trace: str, reference: Reference) -> NumericCheck:
        """Run the built library on the device and compare its outputs with the reference."""
        try:
            answer = twice(lambda: self._run(program, slot))
        except ChildError as error:
            return NumericCheck(Outcome.RUN_ERROR, trace, words=error.message)
        if answer.outcome.failed:
            return NumericCheck(answer.outcome, trace, words=answer.error)
        outputs, expected = str(self._outputs(program)), str(self._file(program, "expected"))
        comparison = self._graphs.compare(outputs, expected, reference)
        words = f"relative error {comparison.max_error:.2g}, allowed {comparison.tolerance:.2g}"
        outcome = Outcome.OK if comparison.ok else Outcome.WRONG_RESULT
        return NumericCheck(outcome, trace, comparison.max_error, words)

    def _overruled(
        self, verdict: NumericCheck, program: Program, slot: MeasureInput, reference: Reference
    ) -> NumericCheck:
        """Return the verdict of two other devices if both pass the candidate; else `verdict`.

        With fewer than LEAST_SPREAD devices, return `verdict` without running again.
        """
        if len(of_class(self._fleet.devices(self._target), self._like)) < LEAST_SPREAD:
            return verdict
        others = []
        for _ in range(2):
            self._runner.release()  # the next run then leases another device
            others.append(self._answer(program, slot, verdict.trace, reference))
        return others[0] if all(other.ok for other in others) else verdict

    def _reference(self, program: Program) -> Reference:
        if program.key not in self._references:
            inputs, expected = str(self._file(program, "inputs")), str(self._file(program, "expected"))
            self._references[program.key] = self._graphs.reference(
                program.tir, program.args, SEED, inputs, expected
            )
        return self._references[program.key]

    def _run(self, program: Program, slot: MeasureInput) -> LibraryRun:
        # Lease the device first, so that waiting for it does not count against the run's
        # timeout.
        self._runner.identity(self._tracker, self._target.text, hold=True, like=self._like)
        return self._runner.run_outputs(
            tracker=self._tracker,
            target=self._target.text,
            artifact=str(self._library(program)),
            inputs=str(self._file(program, "inputs")),
            outputs=str(self._outputs(program)),
            candidate_key=f"{program.key[:16]}/{slot.candidate.key}/check",
            timeout_sec=RUN_TIMEOUT_SEC,
        )

    def _library(self, program: Program) -> Path:
        return self._file(program, "library").with_suffix(".so")

    def _file(self, program: Program, content: str) -> Path:
        return self._folder.graphs / f"{program.key[:16]}-{content}.npz"

    def _outputs(self, program: Program) -> Path:
        return self._folder.answers / f"{program.key[:16]}-outputs.npz"


@contextmanager
def verifier(
    runtime: Runtime,
    target: Target,
    graphs: ModelCompiler,
    folder: StageFolder,
    like: DeviceClass | None = None,
) -> Iterator[Verifier]:
    """Yield a verifier, and release its device at the end."""
    try:
        yield Verifier(runtime, target, graphs, folder, like)
    finally:
        runtime.runner.release()
