"""The tracker of a run, as the product's own roll call and fleet ask it."""

from types import TracebackType
from typing import Any, Final, Self

from mallorn.core.targets import Target
from mallorn.workers.device.tracker_client import tracker_key
from mallorn.workers.process.heartbeat import Heartbeat
from tests.simulation.benches import Benches, Device

EVERY_SEC: Final = 15.0  # between two roll calls of a worker; devices are fresh for twice as long


class Tracker:
    """In place of a TrackerClient."""

    def __init__(self, benches: Benches, target: Target) -> None:
        self._benches = benches
        self._target = target

    def summary(self) -> Any:
        """What is registered."""
        return {"server_info": [self._told(device) for device in self._benches.here()]}

    def _told(self, device: Device) -> dict[str, Any]:
        words = {"target": self._target.text} | self._benches.words(device)
        return {"key": f"server:{tracker_key(self._target)}", "busy": False, "mallorn": words}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """There is no connection."""


class QuietRollCall(Heartbeat):
    """Reports every few seconds, and not whenever the work changes: a run has enough statements."""

    def begin_task(self, task: str) -> None:
        """It shows with the next."""
        self._tasks.append(task)

    def end_task(self, task: str) -> None:
        self._tasks.remove(task)
