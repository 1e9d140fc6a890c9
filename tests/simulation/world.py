"""One run: a seed and its faults go in, a history and the laws that it breaks come out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from tests.simulation.benches import Benches
from tests.simulation.broker import Broker
from tests.simulation.history import History
from tests.simulation.laws import broken_laws
from tests.simulation.loom import Loom
from tests.simulation.owners import Owner, wish
from tests.simulation.parts import WORKERS, Parts
from tests.simulation.seams import made_up
from tests.simulation.sky import Sky
from tests.simulation.storage import Answers, Storage
from tests.simulation.store import Shelf
from tests.simulation.weather import Fault, draw

LONGEST_SEC: Final = 1200.0
WIDTHS: Final = (1, 1, 2, 3)  # rounds and stages that a worker does at a time
OWNERS: Final = ("ada", "bob")
DEVICES: Final = (2, 4)  # how many there are: as many as rounds are open, or more than workers


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
    broker, shelf = Broker(loom), Shelf(loom)
    benches = Benches(loom, history, random.choice(DEVICES))
    troubles = Answers(storage, loom, history.note)
    storage.renew(lambda: loom.now + troubles.ahead_sec)
    storage.troubles = troubles
    with made_up(loom, broker, benches, history, shelf):
        parts = Parts(storage, loom, broker, benches, history, width=random.choice(WIDTHS))
        owners = _people(parts, random)
        sky = Sky(parts, owners, storage, troubles, shelf)
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
    """Three workers, two controls, a stranger, and two owners with a job or two."""
    for number in range(WORKERS):
        parts.start(f"worker{number}", parts.worker)
    for number in range(2):
        parts.start(f"control{number}", parts.control)
    parts.start("stranger", parts.stranger)
    owners = []
    for name in OWNERS:
        wishes = [wish(random) for _ in range(2 if name == "ada" and random.random() < 0.1 else 1)]
        owners.append(owner := Owner(parts, name, wishes))
        parts.start(name, partial(parts.owner, owner))
    return owners


def _watch(loom: Loom, owners: Sequence[Owner]) -> None:
    def look() -> None:
        if all(owner.done for owner in owners):
            loom.stop()
        else:
            loom.at(loom.now + 1.0, look)

    look()
