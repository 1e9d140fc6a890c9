"""Answers from recorded measurements: no compiler, no device, no TVM in the process."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from mallorn.core.errors import InvalidRequest, Misconfigured, NotFound
from mallorn.core.options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from workers.measure.base import Measurer, Program, Result, Slot, Tools
from workers.measure.recording import load_recording

NOT_RECORDED = "not in the recording"


class ReplayMeasurer(Measurer):
    """Says again what was measured once; a candidate that never was is a run error."""

    @classmethod
    def from_tools(cls, tools: Tools) -> Self:
        if tools.settings.recording is None:
            raise Misconfigured(
                "replay needs a recording to answer from", hint="MALLORN_RECORDING=FILE mallorn worker"
            )
        try:
            return cls(tools.settings.recording)
        except (InvalidRequest, NotFound) as error:
            raise Misconfigured(error.message, hint=error.hint) from error

    def __init__(self, recording: Path) -> None:
        self._results = load_recording(recording)

    def measure(
        self,
        program: Program,
        target: Target,
        slots: Sequence[Slot],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[Result, None, None]:
        """Answer every slot, in order."""
        for slot in slots:
            recorded = self._results.get((program.key, slot.candidate.key))
            if recorded is None:
                yield Result(slot.slot, Outcome.RUN_ERROR, error=NOT_RECORDED)
            else:
                yield replace(recorded, slot=slot.slot)
