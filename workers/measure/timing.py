"""The measuring half of a round: one candidate at a time on a device that this round holds."""

import select
import time
from collections.abc import Mapping
from enum import Enum
from typing import Any

from mallorn.core.outcomes import Outcome
from workers.children.child import Child
from workers.children.errors import ChildError, ChildTimeout
from workers.children.pending import START_TIMEOUT_SEC
from workers.measure.base import Endpoint, Program, Result
from workers.measure.builds import Built
from workers.measure.fleet import endpoint_of
from workers.measure.texts import shorten

DEVICE_WAIT_SEC = 300.0
# What a runner may take on top of a candidate's own deadline: upload, arguments, a slow network.
GRACE_SEC = 20.0


class Phase(Enum):
    IDLE = "idle"
    TAKING = "taking a device"
    TIMING = "timing a candidate"


class Timing:
    """The device, behind the runner child. `begin` and `poll` never wait."""

    def __init__(
        self,
        runner: Child,
        device: Mapping[str, str],
        request: Mapping[str, Any],
        program: Program,
        timeout_sec: float,
        purpose: str = "",
    ) -> None:
        self._runner = runner
        self._purpose = purpose  # marks repeats in the device's own log
        self._device = dict(device)
        self._request = dict(request)
        self._workload = program.key
        self._args = program.args
        self._timeout_sec = timeout_sec
        self._phase = Phase.IDLE
        self._built: Built | None = None
        self._sent_sec = self._limit_sec = self._deadline_sec = 0.0
        self._was_ready = False
        self._endpoint: Endpoint | None = None

    @property
    def idle(self) -> bool:
        return self._phase is Phase.IDLE

    def take(self) -> None:
        """Wait until the device is ours. Raises NoDevice or Unavailable."""
        self._send(Phase.TAKING)
        while self._phase is Phase.TAKING:
            self.wait()
            self.poll()

    def measure(self, built: Built) -> Result:
        """Time a candidate and wait for the end of it."""
        self.begin(built)
        while (result := self.poll()) is None:
            self.wait()
        return result

    def begin(self, built: Built) -> None:
        """Start timing a candidate; the device is taken first, should the last one have lost it."""
        self._built = built
        self._send(Phase.TAKING)

    def poll(self) -> Result | None:
        """The end of the candidate on the device, once it is there."""
        try:
            if not self._answered():
                return None
            answer = self._runner.result()
        except ChildError as error:
            return self._failed(error)
        if self._built is not None and self._phase is Phase.TIMING:
            return self._finish(self._built, answer)
        self._endpoint = endpoint_of(answer)
        self._phase = Phase.IDLE
        if self._built is not None:
            self._send(Phase.TIMING)
        return None

    def wait(self) -> None:
        """Sleep until `poll` may know more."""
        poller = select.poll()
        poller.register(self._runner, self._runner.events)
        poller.poll(max(0.0, self._deadline_sec - time.monotonic()) * 1000)

    def give_back(self) -> None:
        """Leave the device to others; a candidate that is still on it is killed with its session."""
        if not self._runner.alive:
            return
        if self.idle:
            self._runner.call("release", GRACE_SEC)
        else:
            self._runner.kill()

    def _send(self, phase: Phase) -> None:
        self._phase = phase
        if phase is Phase.TAKING:
            self._limit_sec = DEVICE_WAIT_SEC + GRACE_SEC
            hold = self._built is not None
            self._runner.send("identity", **self._device, wait_sec=DEVICE_WAIT_SEC, hold=hold)
        elif self._built is not None:
            self._limit_sec = self._timeout_sec + GRACE_SEC
            self._runner.send("measure", **self._device, **self._request, **self._candidate(self._built))
        self._sent_sec, self._was_ready = time.monotonic(), self._runner.ready
        self._deadline_sec = self._sent_sec + self._limit_sec

    def _candidate(self, built: Built) -> dict[str, Any]:
        key = f"{self._workload[:16]}/{built.slot.candidate.key}{self._purpose}"
        return {
            "artifact": str(built.artifact),
            "args": {**self._args, "args": built.args},
            "candidate_key": key,
            "timeout_sec": self._timeout_sec,
        }

    def _answered(self) -> bool:
        if self._runner.poll():
            return True
        now_sec = time.monotonic()
        if not self._was_ready and now_sec < self._sent_sec + START_TIMEOUT_SEC:
            # Time begins when the process is ready: at the look that finds it so.
            self._was_ready, self._deadline_sec = self._runner.ready, now_sec + self._limit_sec
        elif now_sec > self._deadline_sec:
            raise self._runner.expire(self._limit_sec)
        return False

    def _failed(self, error: ChildError) -> Result:
        """A runner that failed while it timed a candidate failed because of it."""
        built = self._built
        if built is None or self._phase is not Phase.TIMING:
            self._phase, self._built = Phase.IDLE, None
            raise error
        timed_out = isinstance(error, ChildTimeout)
        outcome = Outcome.RUN_TIMEOUT if timed_out else Outcome.RUN_ERROR
        return self._finish(
            built, {"outcome": outcome, "error": error.message, "run_us": None, "run_ms": None}
        )

    def _finish(self, built: Built, answer: Mapping[str, Any]) -> Result:
        self._built, self._phase = None, Phase.IDLE
        return Result(
            slot=built.slot.slot,
            outcome=Outcome(answer["outcome"]),
            run_us=tuple(answer["run_us"] or ()),
            error=shorten(answer["error"]),
            build_ms=built.build_ms,
            run_ms=answer["run_ms"],
            endpoint=self._endpoint,
        )
