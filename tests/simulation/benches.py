"""Devices that measure by the formula of `simulated`, vanish, slow down, lie, boast; and the check."""

import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

from mallorn.core.errors import HostFault, MallornError, NoDevice, StorageFull, Unavailable
from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.research.simulated_device.measurer import SimulatedMeasurer, simulate_run
from mallorn.workers.device.device_class import Endpoint, endpoint_of
from mallorn.workers.finish.numeric_check import Checker, NumericCheck
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult, Need, Program
from tests.simulation.history import History
from tests.simulation.loom import Loom

NAME: Final = "tests.simulation.benches:Bench"
USUAL, OTHER = "made-up", "made-up-otherwise"  # classes of hosts
USUAL_SEC: Final = 3.0  # a round lasts about a lease: who is late finds others at their work
SLOW_SEC: Final = 12.0
#: What no device can be, as JSON brings it.
BOASTS: Final[tuple[dict[str, Any], ...]] = (
    {"threads": float("inf")},
    {"threads": 10**30},
    {"threads": "as many as you like"},
    {"host_class": None},
    {"name": ["bench", "press"]},
    {"cores": {"many": True}},
)


@dataclass(slots=True)
class Device:
    """One device, and until when it does what it should not."""

    endpoint: Endpoint
    boast: dict[str, Any] = field(default_factory=dict)
    boasts_until: float = 0.0
    is_other: bool = False
    away_until: float = 0.0
    slow_until: float = 0.0
    lies_until: float = 0.0
    repeats_until: float = 0.0


class Benches:
    """All devices of a run."""

    def __init__(self, loom: Loom, history: History, count: int = 2) -> None:
        self.loom = loom
        self.history = history
        self.devices = [
            Device(Endpoint(f"bench-{number}", f"host-{number}", USUAL, 2, "0.27.0"))
            for number in range(count)
        ]
        self.wrong: set[str] = set()  # candidates that a lying device was asked for

    def here(self) -> list[Device]:
        return [device for device in self.devices if device.away_until <= self.loom.now]

    def take(self, like: Any = None) -> Device:
        """Any that is there, of a class where one is asked for. Raises NoDevice."""
        wanted = None if like is None else like.host_class
        here = [each for each in self.here() if wanted in (None, self.words(each)["host_class"])]
        if not here:
            raise NoDevice
        return self.loom.random.choice(here)

    def words(self, device: Device) -> dict[str, Any]:
        """What a device says of itself."""
        told = {name: value for name, value in asdict(device.endpoint).items() if name != "info"}
        if device.is_other:
            told["host_class"] = OTHER
        return told | device.boast if device.boasts_until > self.loom.now else told

    def session(self, like: Any = None) -> tuple[Device, Endpoint]:
        """A device, and who it says it is. Raises NoDevice; Unavailable for one that nobody understands."""
        device = self.take(like)
        try:
            return device, endpoint_of(self.words(device))  # type: ignore[arg-type]
        except (
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # as `remote_device` has it
            raise Unavailable(f"the device is lost: {error}") from None

    def ails(self) -> MallornError | None:
        """What this host lacks, as a worker finds out that tries itself."""
        try:
            self.check_host()
        except MallornError as error:
            return error
        return None

    def check_host(self) -> None:
        """Raise what a host brings about that lacks something."""
        if self.loom.process.host.sick_until > self.loom.now:
            raise HostFault("there is no linker here", hint="apt install binutils")
        self.check_disk()

    def check_disk(self) -> None:
        """Raise StorageFull where the disk of this host is full."""
        if self.loom.process.host.full_until > self.loom.now:
            raise StorageFull

    def run(
        self, program: Program, target: Target, slot: MeasureInput, options: JobOptions, like: Any = None
    ) -> Iterator[MeasureResult]:
        """Time a candidate. Raises Unavailable where its device goes away meanwhile."""
        device, endpoint = self.session(like)
        self.loom.sleep(SLOW_SEC if device.slow_until > self.loom.now else USUAL_SEC)
        if device.away_until > self.loom.now:
            raise Unavailable(f"{device.endpoint.name} does not answer")
        self.history.note("ran", program.key, slot.candidate.sketch, slot.candidate.decisions)
        result = simulate_run(program, target, slot, options, endpoint)
        if device.lies_until > self.loom.now:
            self.wrong.add(slot.candidate.key)
            result = replace(
                result, trial=replace(result.trial, outcome=Outcome.OK, error="", run_us=(1e-3,))
            )
        yield result
        if device.repeats_until > self.loom.now:
            yield result


class Bench(SimulatedMeasurer):
    """The Measurer seam over a run's devices."""

    virtual_device = ""  # its devices are hardware as far as the service knows

    def __init__(self, benches: Benches, like: Any = None) -> None:
        self._benches = benches
        self._like = like

    @classmethod
    def from_tools(cls, tools: Any) -> Self:
        return cls(tools)

    def measure(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        self._benches.check_host()
        for slot in inputs:
            yield from self._benches.run(program, target, slot, options, self._like)

    def virtual_device_for(self, tasks: Any, target: Target, options: JobOptions) -> Any:
        """Return None: these devices are not virtual."""
        return None

    def require(self, need: Need) -> bool:
        if need is Need.TIME:
            raise MallornError("there is no model")
        return True


class Check(Checker):
    """The numeric check: what a lying device was asked for is wrong, and a few others are."""

    def __init__(self, benches: Benches, runtime: Any, target: Target) -> None:
        super().__init__(runtime, target)
        self._benches = benches

    def verify(self, program: Program, slot: MeasureInput) -> NumericCheck:
        self._benches.loom.sleep(USUAL_SEC)
        key = slot.candidate.key
        right = key not in self._benches.wrong and int.from_bytes(key.encode()[-1:]) % 8 > 0
        self._benches.history.note(
            "checked", program.key, slot.candidate.sketch, slot.candidate.decisions, right
        )
        trace = json.dumps([slot.sketch.key, slot.candidate.decisions])
        if right:
            return NumericCheck(Outcome.OK, trace, 1e-7)
        return NumericCheck(Outcome.WRONG_RESULT, trace, 1.0, "wrong")


def verifier_of(benches: Benches) -> Any:
    """In place of mallorn.workers.finish.numeric_check.Verifier."""

    def verifier(runtime: Any, target: Target, *_given: Any) -> Checker:
        return Check(benches, runtime, target)

    return verifier
