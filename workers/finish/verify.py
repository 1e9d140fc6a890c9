"""Whether a scheduled program computes what the unscheduled one does."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mallorn.core.targets import Target
from workers.children.child import Child
from workers.children.errors import ChildError
from workers.measure.base import Program, Slot
from workers.measure.timing import DEVICE_WAIT_SEC, GRACE_SEC
from workers.runtime import Runtime

SEED: Final = 20_260_101
REFERENCE_TIMEOUT_SEC: Final = 300.0
BUILD_TIMEOUT_SEC: Final = 120.0
RUN_TIMEOUT_SEC: Final = 60.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The numeric check of one candidate; `words` say what is wrong with it."""

    ok: bool
    max_error: float
    trace: str
    words: str = ""


class Verifier:
    """Runs winners on their device with random inputs and compares with the unscheduled program."""

    def __init__(self, runtime: Runtime, target: Target, graphs: Child, folder: Path) -> None:
        self._compiler = runtime.compiler
        self._runner = runtime.runner
        self._tracker = runtime.settings.tracker
        self._target = target
        self._graphs = graphs
        self._folder = folder
        self._references: dict[str, dict[str, Any]] = {}

    def verify(self, program: Program, slot: Slot) -> Verdict:
        """Check one candidate; what crashes or hangs in the check has failed it."""
        trace = self._compiler.call(
            "full_trace",
            BUILD_TIMEOUT_SEC,
            tir=program.tir,
            target=self._target.text,
            trace=slot.sketch.trace,
            decisions=list(slot.candidate.decisions),
        )
        if trace is None:
            return Verdict(False, float("inf"), "", "it can no longer be rebuilt")
        reference = self._reference(program)
        try:
            answer = self._run(program, trace, slot)
        except ChildError as error:
            return Verdict(False, float("inf"), trace, error.message)
        if answer["outputs"] is None:
            return Verdict(False, float("inf"), trace, answer["error"])
        compared = self._graphs.call(
            "compare",
            RUN_TIMEOUT_SEC,
            outputs_npz=answer["outputs"],
            expected_npz=str(self._file(program, "expected")),
            **reference,
        )
        words = f"relative error {compared['max_error']:.2g}, allowed {compared['tolerance']:.2g}"
        return Verdict(compared["ok"], compared["max_error"], trace, words)

    def _reference(self, program: Program) -> dict[str, Any]:
        if program.key not in self._references:
            self._references[program.key] = self._graphs.call(
                "reference",
                REFERENCE_TIMEOUT_SEC,
                tir=program.tir,
                args=program.args,
                seed=SEED,
                inputs_npz=str(self._file(program, "inputs")),
                expected_npz=str(self._file(program, "expected")),
            )
        return self._references[program.key]

    def _run(self, program: Program, trace: str, slot: Slot) -> dict[str, Any]:
        library = str(self._file(program, "library").with_suffix(".so"))
        self._graphs.call(
            "build_whole",
            BUILD_TIMEOUT_SEC,
            tir=program.tir,
            trace=trace,
            target=self._target.text,
            out_so=library,
        )
        device = {"tracker": self._tracker, "target": self._target.text}
        # Taken beforehand: waiting for a busy device must not count against the candidate.
        self._runner.call("identity", DEVICE_WAIT_SEC + GRACE_SEC, **device, wait_sec=DEVICE_WAIT_SEC)
        answer: dict[str, Any] = self._runner.call(
            "run_outputs",
            RUN_TIMEOUT_SEC + GRACE_SEC,
            **device,
            artifact=library,
            inputs=str(self._file(program, "inputs")),
            outputs=str(self._file(program, "outputs")),
            candidate_key=f"{program.key[:16]}/{slot.candidate.key}/check",
            timeout_sec=RUN_TIMEOUT_SEC,
        )
        return answer

    def _file(self, program: Program, what: str) -> Path:
        return self._folder / f"{program.key[:16]}-{what}.npz"


@contextmanager
def verifier(runtime: Runtime, target: Target) -> Iterator[Verifier]:
    """A verifier with its own process for reference programs."""
    with (
        TemporaryDirectory(prefix="mallorn-verify-") as folder,
        runtime.graphs(target.num_cores) as graphs,
    ):
        try:
            yield Verifier(runtime, target, graphs, Path(folder))
        finally:
            runtime.runner.call("release", RUN_TIMEOUT_SEC)
