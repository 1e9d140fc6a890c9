"""The owners of a run with their clients."""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from mallorn.core import queues
from mallorn.core.errors import Conflict, NotFound, Unavailable
from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.stored_files import Models
from mallorn.services.coordinator.jobs.job_request_bodies import JobIn
from mallorn.services.coordinator.jobs.submit import create_or_find_job
from mallorn.services.coordinator.web.app_parts import Waker
from tests.simulation.benches import NAME
from tests.simulation.broker import Broker
from tests.simulation.parts import LOOK_SEC, Parts
from tests.simulation.policies import IN_ORDER
from tests.simulation.seams import SETTINGS, TARGET

PRIVATE_SHARE: Final = 0.3  # of the jobs
LONG_SHARE: Final = 0.15  # of the jobs: a single task, of which several rounds are in flight
LONG_TRIALS: Final = 32
MODEL: Final = "a" * 64
OPTIONS: Final = JobOptions.model_validate(
    {
        "measurer": NAME,
        "search": "random",
        "cost_model": "random",
        "policy": "gradient",
        "round_size": 4,
    }
)


def wish(random: Random, **options: str) -> JobIn:
    """A job as somebody asks for it."""
    names = random.choice((["w0"], ["w0"], ["w1"], ["w0", "w1"]))
    asked = {"name": "+".join(names), "trials": random.choice((4, 4, 6, 8)), "seed": random.randrange(100)}
    if random.random() < LONG_SHARE:
        asked |= {"name": names[0], "trials": LONG_TRIALS}
        options = {"search": IN_ORDER, **options}
    changed = OPTIONS.model_copy(update={"private": random.random() < PRIVATE_SHARE, **options})
    return JobIn(model_id=MODEL, target=TARGET.text, options=changed, **asked)


class BrokersWaker(Waker):
    """A coordinator's waker, which sends by the broker of the run."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def wake(self, task: str, *args: object) -> None:
        self._broker.send(task, *args)


class Owner:
    """Submits jobs, looks at them, and at nobody else's; changes their mind where the weather says so."""

    def __init__(self, parts: Parts, name: str, wishes: list[JobIn], at_rest: Collection[str] = ()) -> None:
        self._parts = parts
        self.name = name
        self._wishes = wishes
        self._at_rest = at_rest  # states in which they leave a job alone
        self.accepted: list[str] = []
        self.told: dict[str, tuple[int, int]] = {}  # between which entries of the history a job was accepted
        self.seen: set[str] = set()
        self.states: dict[str, str] = {}
        self.orders: list[tuple[str, int]] = []  # what to do with which of the jobs
        self.done = False

    def live(self) -> None:
        loom = self._parts.loom
        self._insist(self._upload)
        for number, wish in enumerate(self._wishes):
            loom.sleep(loom.random.uniform(0, 4))
            began = len(self._parts.history.entries)
            self.accepted.append(self._insist(partial(self._submit, wish, f"{self.name}-{number}")))
            self._parts.history.note("accepted", self.name, self.accepted[-1])
            self.told[self.accepted[-1]] = began, len(self._parts.history.entries)
        while True:
            loom.sleep(LOOK_SEC)
            for order in self._taken():
                self._obey(*order)
            self._insist(self._look)
            self.done = all(map(self._is_over, self.accepted)) and not self.orders

    def _is_over(self, job_id: str) -> bool:
        if job_id not in self.states:
            return self.may_miss(job_id)
        return over(self.states[job_id]) or self.states[job_id] in self._at_rest

    def comes_back(self) -> None:
        """The database was restored: what was paused then is resumed, as it was."""
        self.done = False
        self.orders += [("resume", which) for which in range(len(self.accepted))]

    def _taken(self) -> Iterator[tuple[str, int]]:
        while self.orders:
            self.done = False  # whatever comes of it has to be looked at first
            yield self.orders.pop(0)

    def _insist(self, act: Callable[[], Any]) -> Any:
        while True:
            try:
                return act()
            except Unavailable:
                self._parts.loom.sleep(1.0)

    def _upload(self) -> None:
        with self._parts.database.transaction() as session:
            Models(session).add(MODEL, self.name, "made-up", 10)

    def _submit(self, wish: JobIn, key: str) -> str:
        waker = BrokersWaker(self._parts.broker)
        door = SimpleNamespace(needs_credentials=lambda: False)  # the service asks for no API keys
        database = self._parts.database
        parts: Any = SimpleNamespace(database=database, waker=waker, settings=SETTINGS, door=door)
        try:
            return create_or_find_job(parts, self.name, wish, key)[0].id
        except NotFound:  # a restore took the model away
            self._upload()
            return create_or_find_job(parts, self.name, wish, key)[0].id

    def _look(self) -> None:
        with self._parts.database.session() as session:
            found = Jobs(session).list(self.name).items
        self.states = {job.id: job.state for job in found}
        for job in found:
            if job.id not in self.seen:
                self.seen.add(job.id)
                self._parts.history.note("listed", self.name, job.id, job.owner)

    def may_miss(self, job_id: str) -> bool:
        """Whether a restore may have taken a job away, which is nobody's fault."""
        return self._parts.history.may_be_undone(*self.told[job_id])

    def _obey(self, what: str, which: int) -> None:
        if not self.accepted:
            return
        job_id = self.accepted[which % len(self.accepted)]
        try:
            self._insist(partial(self._order, what, job_id))
            self._parts.history.note(what, job_id)
        except Conflict:
            self._parts.history.note(what, job_id, "refused")
        except NotFound:
            self._parts.history.note(what, job_id, "is gone")

    def _order(self, what: str, job_id: str) -> None:
        with self._parts.database.transaction() as session:
            getattr(Jobs(session), what)(job_id, self.name)
            state = Jobs(session).get(job_id, self.name).state
        if what == "resume" and state == JobState.TUNING:
            self._parts.broker.send(queues.PLAN, job_id)


def over(state: str) -> bool:
    """Whether nobody has to do anything about a job any more."""
    return bool(state) and JobState(state).is_final
