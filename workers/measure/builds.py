"""The building half of a round: keeps every builder busy and turns what ends badly into results."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mallorn.core.errors import HostFault, StorageFull
from mallorn.core.outcomes import Outcome
from workers.children.errors import ChildTimeout
from workers.children.pool import ChildPool, Finished
from workers.measure.base import Result, Slot
from workers.measure.texts import shorten


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate whose library is ready to be measured."""

    slot: Slot
    artifact: Path
    args: list[Any]  # as the program's, but for weights in the layout that the schedule wants
    build_ms: float


class Builds:
    """The candidates of one round on their way through the builders."""

    def __init__(
        self,
        builders: ChildPool,
        slots: Sequence[Slot],
        program: dict[str, Any],
        folder: Path,
        timeout_sec: float,
    ) -> None:
        self._builders = builders
        self._waiting = deque(slots)
        self._slots = {slot.slot: slot for slot in slots}
        self._program = program
        self._folder = folder
        self._timeout_sec = timeout_sec

    @property
    def unfinished(self) -> bool:
        return bool(self._waiting or self._builders.tags)

    def feed(self) -> None:
        """Give every free builder a candidate."""
        while self._waiting and self._builders.free:
            slot = self._waiting.popleft()
            self._builders.submit("build", self._params(slot), self._timeout_sec, slot.slot)

    def poll(self, timeout_sec: float) -> list[Built | Result]:
        """What became ready or failed, waiting up to `timeout_sec` for the first; freed builders go on."""
        self.feed()
        finished = self._builders.poll(timeout_sec)
        self.feed()
        return [self._judge(end) for end in finished]

    def pause(self) -> None:
        """Leave the cores to the device."""
        self._builders.suspend()

    def go_on(self) -> None:
        self._builders.resume()

    def abort(self) -> None:
        """Stop the work on this round; the builders stay usable."""
        self._waiting.clear()
        self._builders.cancel()
        self._builders.resume()

    def _params(self, slot: Slot) -> dict[str, Any]:
        return {
            **self._program,
            "trace": slot.sketch.trace,
            "decisions": list(slot.candidate.decisions),
            "out_path": str(self._artifact(slot)),
        }

    def _artifact(self, slot: Slot) -> Path:
        return self._folder / f"{slot.slot}.so"

    def _judge(self, end: Finished) -> Built | Result:
        slot = self._slots[int(str(end.tag))]
        if end.error is None:
            return Built(slot, self._artifact(slot), end.result["args"], float(end.result["build_ms"]))
        if isinstance(end.error, HostFault | StorageFull):
            raise end.error  # of our own host: no candidate is to blame
        outcome = Outcome.BUILD_TIMEOUT if isinstance(end.error, ChildTimeout) else Outcome.BUILD_ERROR
        return Result(slot.slot, outcome, error=shorten(end.error.message))
