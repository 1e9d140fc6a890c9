"""One run: a seed and its faults go in, a history and the laws that it breaks come out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from services.coordinator.jobs.requests import JobIn
from tests.simulation.benches import Benches, Device
from tests.simulation.broker import Broker
from tests.simulation.history import History
from tests.simulation.laws import broken_laws
from tests.simulation.loom import Loom
from tests.simulation.parts import OPTIONS, TARGET, Owner, Parts
from tests.simulation.seams import made_up
from tests.simulation.storage import Answers, Storage
from tests.simulation.weather import Fault, draw

LONGEST_SEC: Final = 900.0
OWNERS: Final = ("ada", "bob")
MORTALS: Final = 7  # of the processes: all but owners and strangers
PRIVATE_SHARE: Final = 0.3  # of the jobs


@dataclass(frozen=True, slots=True)
class Scenario:
    """What decides a run, wholly."""

    seed: int
    faults: tuple[Fault, ...]

    @classmethod
    def of(cls, seed: int, only: Sequence[int] | None = None) -> "Scenario":
        """The faults of a seed, or some of them by their places."""
        drawn = draw(seed)
        return cls(seed, drawn if only is None else tuple(drawn[place] for place in only))

    @property
    def places(self) -> list[int]:
        """Which of its seed's faults these are."""
        drawn = list(draw(self.seed))
        return [drawn.index(fault) for fault in self.faults]

    @property
    def command(self) -> str:
        """Replays it."""
        words = f"python -m tests.simulation --seed {self.seed}"
        if len(self.faults) < len(draw(self.seed)):
            words += f" --faults {','.join(map(str, self.places)) or 'none'}"
        return words

    def with_faults(self, faults: Sequence[Fault]) -> "Scenario":
        return replace(self, faults=tuple(faults))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    scenario: Scenario
    broken: tuple[str, ...]
    digest: str
    history: History


def simulate(storage: Storage, scenario: Scenario) -> Outcome:
    """Run a scenario to its end."""
    random = Random(f"world {scenario.seed}")
    loom = Loom(random)
    history = History(loom)
    broker, benches = Broker(loom), Benches(loom, history)
    ahead_sec = [0.0]  # of the loom's time, by which the database's clock is
    storage.renew(lambda: loom.now + ahead_sec[0])
    storage.troubles = troubles = Answers(storage, loom, history.note)
    with made_up(loom, broker, benches, history):
        parts = Parts(storage, loom, broker, benches, history)
        owners = _people(parts, random)
        sky = _Sky(parts, owners, troubles, ahead_sec)
        for fault in scenario.faults:
            loom.at(loom.now + fault.at_sec, partial(sky.befall, fault))
        _watch(loom, owners)
        try:
            loom.run(LONGEST_SEC)
            history.note("end")
        finally:
            loom.close()
            storage.troubles = None
    broken = broken_laws(storage, history, owners, scenario.faults)
    if loom.broken is not None:
        broken.append(f"a process fell over: {loom.broken!r}")
    return Outcome(scenario, tuple(broken), history.digest, history)


def _people(parts: Parts, random: Random) -> list[Owner]:
    """Three workers, two controls, a beat, and two owners with a job or two."""
    for number in range(3):
        parts.start(f"worker{number}", parts.worker)
    for number in range(2):
        parts.start(f"control{number}", parts.control)
    parts.start("beat", parts.beat)
    parts.start("tracker", parts.tracker)
    parts.start("stranger", parts.stranger)
    owners = []
    for name in OWNERS:
        wishes = [_wish(random) for _ in range(2 if name == "ada" and random.random() < 0.1 else 1)]
        owners.append(owner := Owner(parts, name, wishes))
        parts.start(name, partial(parts.owner, owner))
    return owners


def _wish(random: Random) -> JobIn:
    names = random.choice((["w0"], ["w0"], ["w1"], ["w0", "w1"]))
    asked = {"name": "+".join(names), "trials": random.choice((4, 4, 6, 8)), "seed": random.randrange(100)}
    private = "on" if random.random() < PRIVATE_SHARE else "off"
    options = OPTIONS.model_copy(update={"private": private})
    return JobIn(model_id="a" * 64, target=TARGET.text, options=options, **asked)


def _watch(loom: Loom, owners: Sequence[Owner]) -> None:
    def look() -> None:
        if all(owner.done for owner in owners):
            loom.stop()
        else:
            loom.at(loom.now + 1.0, look)

    look()


class _Sky:
    """Does what the weather says."""

    def __init__(
        self, parts: Parts, owners: Sequence[Owner], troubles: Answers, ahead_sec: list[float]
    ) -> None:
        self._parts = parts
        self._owners = owners
        self._troubles = troubles
        self._ahead_sec = ahead_sec

    def befall(self, fault: Fault) -> None:
        getattr(self, f"_{fault.kind}")(fault)

    def _kill(self, fault: Fault) -> None:
        parts, place = self._parts, fault.who % MORTALS
        victim = parts.processes[place]
        victim.steps_to_death = fault.count

        def again() -> None:
            victim.alive, victim.steps_to_death = False, None
            parts.replace(place)

        # One that does nothing meanwhile dies then.
        parts.loom.at(parts.loom.now + fault.sec, again)

    def _stall(self, fault: Fault) -> None:
        self._parts.processes[fault.who % MORTALS].frozen_until = self._parts.loom.now + fault.sec

    def _statement(self, fault: Fault) -> None:
        self._parts.processes[fault.who % MORTALS].steps_to_error = fault.count * 5

    def _silence(self, fault: Fault) -> None:
        self._parts.processes[fault.who % MORTALS].commits_to_silence = fault.count

    def _outage(self, fault: Fault) -> None:
        self._troubles.away_until = self._parts.loom.now + fault.sec

    def _jump(self, fault: Fault) -> None:
        self._ahead_sec[0] += fault.sec

    def _lose(self, fault: Fault) -> None:
        self._parts.broker.to_lose += fault.count

    def _twice(self, fault: Fault) -> None:
        self._parts.broker.to_double += fault.count

    def _late(self, fault: Fault) -> None:
        self._parts.broker.to_delay += fault.count
        self._parts.broker.late_sec = fault.sec

    def _flush(self, fault: Fault) -> None:
        self._parts.broker.flush()

    def _vanish(self, fault: Fault) -> None:
        self._device(fault).away_until = self._parts.loom.now + fault.sec

    def _slow(self, fault: Fault) -> None:
        self._device(fault).slow_until = self._parts.loom.now + fault.sec

    def _lie(self, fault: Fault) -> None:
        self._device(fault).lies_until = self._parts.loom.now + fault.sec

    def _repeat(self, fault: Fault) -> None:
        self._device(fault).repeats_until = self._parts.loom.now + fault.sec

    def _pause(self, fault: Fault) -> None:
        owner = self._owners[fault.who % 2]
        owner.orders.append(("pause", fault.who))
        self._parts.loom.at(
            self._parts.loom.now + fault.sec, lambda: owner.orders.append(("resume", fault.who))
        )

    def _cancel(self, fault: Fault) -> None:
        self._owners[fault.who % 2].orders.append(("cancel", fault.who))

    def _device(self, fault: Fault) -> Device:
        devices = self._parts.benches.devices
        return devices[fault.who % len(devices)]
