"""What the weather does to a run."""

from functools import partial
from random import Random
from typing import Final

from mallorn.core import queues
from mallorn.core.states import JobState
from tests.simulation.benches import BOASTS, Device
from tests.simulation.loom import Host
from tests.simulation.owners import Owner, wish
from tests.simulation.parts import WORKERS, Parts
from tests.simulation.policies import NAMES
from tests.simulation.storage import Answers, Storage
from tests.simulation.store import Shelf
from tests.simulation.weather import WHOEVER, Fault

MORTALS: Final = 5  # of the processes: all but owners and strangers
STRANGE: Final = "eve"  # what owners are called whose jobs end as they have to
ELSEWHERE_SEC: Final = 300.0  # so far is the clock of another database, either way


class Sky:
    """Does what the weather says."""

    def __init__(
        self, parts: Parts, owners: list[Owner], storage: Storage, troubles: Answers, shelf: Shelf
    ) -> None:
        self._parts = parts
        self._owners = owners
        self._storage = storage
        self._troubles = troubles
        self._shelf = shelf

    def befall(self, fault: Fault) -> None:
        """It happens now."""
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
        self._troubles.ahead_sec += fault.sec

    def _failover(self, fault: Fault) -> None:
        troubles, now = self._troubles, self._parts.loom.now
        troubles.away_until = now + fault.sec
        troubles.read_only_until = troubles.away_until + fault.count
        troubles.ahead_sec += ELSEWHERE_SEC * (2 * fault.who / WHOEVER - 1)

    def _restore(self, fault: Fault) -> None:
        loom, history = self._parts.loom, self._parts.history
        mark, bring_back = len(history.entries), self._storage.keep()

        def restore() -> None:
            bring_back()
            history.went_back(mark)
            self._parts.broker.send(queues.SWEEP)  # who restores starts control anew
            for owner in self._owners:
                owner.comes_back()

        loom.at(loom.now + fault.sec, restore)

    def _skew(self, fault: Fault) -> None:
        self._host(fault, MORTALS).ahead_sec = fault.sec

    def _sick(self, fault: Fault) -> None:
        self._host(fault, WORKERS).sick_until = self._parts.loom.now + fault.sec

    def _full(self, fault: Fault) -> None:
        self._host(fault, WORKERS).full_until = self._parts.loom.now + fault.sec

    def _newer(self, fault: Fault) -> None:
        self._host(fault, len(self._parts.processes)).version = 1

    def _older(self, fault: Fault) -> None:
        self._host(fault, len(self._parts.processes)).version = -1

    def _store(self, fault: Fault) -> None:
        self._shelf.away_until = self._parts.loom.now + fault.sec

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

    def _boast(self, fault: Fault) -> None:
        device = self._device(fault)
        device.boast = BOASTS[fault.count % len(BOASTS)]
        device.boasts_until = self._parts.loom.now + fault.sec

    def _other(self, fault: Fault) -> None:
        self._parts.benches.devices[-1].is_other = True  # the first stays what jobs may be bound to

    def _pause(self, fault: Fault) -> None:
        owner = self._owners[fault.who % 2]
        owner.orders.append(("pause", fault.who))
        self._parts.loom.at(
            self._parts.loom.now + fault.sec, lambda: owner.orders.append(("resume", fault.who))
        )

    def _cancel(self, fault: Fault) -> None:
        self._owners[fault.who % 2].orders.append(("cancel", fault.who))

    def _raise(self, fault: Fault) -> None:
        name = f"{STRANGE}{len(self._owners)}"
        asked = wish(Random(f"strange {fault.who}"), policy=NAMES[fault.count % len(NAMES)])
        self._owners.append(owner := Owner(self._parts, name, [asked], {JobState.PAUSED}))
        self._parts.start(name, partial(self._parts.owner, owner))

    def _host(self, fault: Fault, among: int) -> Host:
        return self._parts.processes[fault.who % among].host

    def _device(self, fault: Fault) -> Device:
        devices = self._parts.benches.devices
        return devices[fault.who % len(devices)]
