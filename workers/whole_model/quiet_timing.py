"""A race that counts: held again when something disturbed it, and told with how quiet the host was."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Final, Protocol

from mallorn.core.values.finish_report import Conditions, ModelLatency
from workers.host.load_meter import Load
from workers.whole_model.interleaved_timing import Timeable, time_interleaved

MOST_RACES: Final = 3
# No race begins later than this.
LAST_START_SEC: Final = 90.0
QUIET_PATIENCE_SEC: Final = 10.0
# Bursts of one engine that are further apart did not meet the same machine.
FAR_APART: Final = 1.5


class Meter(Protocol):
    """Tells how busy the host was since the last look; workers.host.load_meter has the real one."""

    def look(self) -> Load: ...
    def wait_for_quiet(self, patience_sec: float) -> None: ...


@dataclass(frozen=True, slots=True)
class FairRace:
    """What `race` found, and how far it can be trusted."""

    latency_us: dict[str, ModelLatency]
    disturbances: tuple[str, ...]
    disturbance: float
    races: int = 1

    @property
    def conditions(self) -> Conditions:
        """As the report has it: the note is a sentence for people, empty when all was quiet."""
        if not self.disturbances:
            return Conditions(steady=True, note="")
        again = f" It was timed {self.races} times, and the quietest counts." if self.races > 1 else ""
        told = ", and ".join(self.disturbances)
        return Conditions(steady=False, note=f"While the whole model was timed, {told}.{again}")


def time_undisturbed(engines: Mapping[str, Timeable], meter: Meter, alone: bool) -> FairRace:
    """Race until nothing disturbs, a few times at most; the least disturbed race counts, for all engines.

    An engine that was so far behind that it was called once is not called again.
    """
    started_sec = time.monotonic()
    races: list[FairRace] = []
    hopeless: dict[str, ModelLatency] = {}
    while True:
        meter.look()
        held = {name: engine for name, engine in engines.items() if name not in hopeless}
        latency_us = time_interleaved(held) | hopeless
        hopeless = {name: one for name, one in latency_us.items() if len(one.bursts) == 1}
        races.append(_judge(latency_us, meter.look(), alone))
        late = time.monotonic() - started_sec > LAST_START_SEC
        if not races[-1].disturbances or late or len(races) == MOST_RACES:
            best = min(races, key=lambda one: (bool(one.disturbances), one.disturbance))
            return FairRace(best.latency_us, best.disturbances, best.disturbance, len(races))
        meter.wait_for_quiet(QUIET_PATIENCE_SEC)


def _judge(latency_us: dict[str, ModelLatency], load: Load, alone: bool) -> FairRace:
    spreads = {name: max(one.bursts) / min(one.bursts) for name, one in latency_us.items()}
    widest = max(spreads, key=spreads.__getitem__)
    told = load.words()
    if spreads[widest] > FAR_APART:
        told.append(f"the slowest burst of {widest} took {spreads[widest]:.1f} times as long as its fastest")
    if not alone:
        told.append("other work of this service went on beside it")
    return FairRace(latency_us, tuple(told), load.share + log(spreads[widest]))
