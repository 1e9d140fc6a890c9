"""The processes of a run: workers, control, beat, and the owners with their clients."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.repositories.devices import Devices
from db.repositories.frozen import FrozenRows
from db.repositories.jobs import Jobs
from db.repositories.models import Models
from db.repositories.selection import Selection
from db.repositories.targets import Targets
from db.repositories.workers import Workers
from db.tables import Job, Task, Workload
from mallorn.core import queues
from mallorn.core.errors import Conflict, MallornError, NotFound, Unavailable
from mallorn.core.options import JobOptions
from mallorn.core.states import JobState
from mallorn.core.targets import parse_target
from mallorn.core.values.fleet import WorkerInfo
from services.control import tasks as control_tasks
from services.coordinator.jobs.requests import JobIn
from services.coordinator.jobs.submit import submit
from tests.simulation.benches import NAME, Benches
from tests.simulation.broker import Broker
from tests.simulation.history import History
from tests.simulation.loom import Loom, Process
from tests.simulation.seams import SETTINGS, Hand
from tests.simulation.storage import Shared, Storage
from workers import tasks as worker_tasks
from workers.slot.attendance import MISSED_SEC, _seen

TARGET: Final = parse_target('{"kind":"llvm","num-cores":2}')
DOORS: Final[dict[str, Any]] = {
    queues.PLAN: control_tasks.plan,
    queues.SWEEP: control_tasks.sweep_lost_messages,
    queues.REAP: control_tasks.reap_expired_leases,
    queues.IMPORT_MODEL: worker_tasks.import_model,
    queues.RUN_ROUND: worker_tasks.run_round,
    queues.FINISH_JOB: worker_tasks.finish_job,
}
BEAT_SEC: Final = 9.0
PRESENT_SEC: Final = 12.0
LOOK_SEC: Final = 6.0
EVERYTHING: Final = 10_000  # rows of a run, and more
OPTIONS: Final = JobOptions.model_validate(
    {
        "measurer": NAME,
        "search": "random",
        "cost_model": "random",
        "policy": "gradient",
        "round_size": 4,
    }
)


class Parts:
    """Starts processes, and starts them again."""

    def __init__(
        self, storage: Storage, loom: Loom, broker: Broker, benches: Benches, history: History
    ) -> None:
        self.loom = loom
        self.broker = broker
        self.benches = benches
        self.history = history
        self.database = Shared(storage, loom)
        self.processes: list[Process] = []
        self._starts: list[Callable[[Process], None]] = []
        self._numbers = itertools.count()

    def start(self, name: str, begin: Callable[[Process], None]) -> None:
        """A process that has a place of its own, whoever takes it."""
        self.processes.append(self._born(name))
        self._starts.append(begin)
        begin(self.processes[-1])

    def replace(self, place: int) -> None:
        """A new process in the place of a dead one."""
        if not self.processes[place].alive:
            name = self.processes[place].name.split("#")[0]
            self.processes[place] = self._born(name)
            self._starts[place](self.processes[place])

    def _born(self, name: str) -> Process:
        return Process(f"{name}#{next(self._numbers)}", self.loom.random.uniform(0.8, 1.25))

    def worker(self, process: Process) -> None:
        process.runtime = Hand(self.database, process.name, self.benches)
        self.loom.spawn(process, lambda: self._serve(control=False))
        self.loom.spawn(process, self._attend, "roll-call")

    def control(self, process: Process) -> None:
        process.runtime = self.database
        self.loom.spawn(process, lambda: self._serve(control=True))

    def beat(self, process: Process) -> None:
        self.loom.spawn(process, self._beat)

    def _serve(self, control: bool) -> None:
        while True:
            name, args = self.broker.take(control)
            if name in DOORS:
                self.history.note("begin", name, *args)
                try:
                    DOORS[name](*args)
                except (MallornError, NotFound) as error:
                    self.history.note("broke off", name, *args, type(error).__name__)
                except Exception as error:
                    self.history.note("raised", name, *args, type(error).__name__, str(error)[:300])
                self.loom.step()

    def _beat(self) -> None:
        while True:
            self.broker.send(queues.SWEEP)
            self.broker.send(queues.REAP)
            self.loom.sleep(BEAT_SEC)

    def owner(self, who: "Owner", process: Process) -> None:
        self.loom.spawn(process, who.live)

    def stranger(self, process: Process) -> None:
        self.loom.spawn(process, self._pry)

    def _pry(self) -> None:
        """Read what anybody may take away, and compare it with what was brought for everybody."""
        while True:
            self.loom.sleep(LOOK_SEC)
            with suppress(Unavailable), self.database.session() as session:
                brought = select(Workload.key).join(Task).join(Job, Job.id == Task.job_id).where(~Job.private)
                known = set(session.scalars(brought))
                for name in sorted({*FrozenRows(session).page(Selection(), 0, EVERYTHING)["workload"]}):
                    self.history.note("exported", name, name in known)

    def tracker(self, process: Process) -> None:
        self.loom.spawn(process, lambda: self._report(self._devices))

    def _report(self, what: Callable[[Session], None]) -> None:
        while True:
            with suppress(MallornError), self.database.transaction() as session:
                what(session)
            self.loom.sleep(PRESENT_SEC)

    def _attend(self) -> None:
        name = self.loom.process.name
        info = WorkerInfo(pid=1, tunes=True)
        self._report(lambda session: Workers(session).seen(name, name, info))

    def _devices(self, session: Session) -> None:
        here = self.benches.here()
        for device in here:
            told: Any = SimpleNamespace(endpoint=device.endpoint, target=TARGET.text, busy=False)
            Devices(session).seen(_seen(told, Targets(session).ensure(TARGET).id))
        Devices(session).missed([device.endpoint.name for device in here], MISSED_SEC)


class Owner:
    """Submits jobs, looks at them, and at nobody else's; changes their mind where the weather says so."""

    def __init__(self, parts: Parts, name: str, wishes: list[JobIn]) -> None:
        self._parts = parts
        self.name = name
        self._wishes = wishes
        self.accepted: list[str] = []
        self.seen: set[str] = set()
        self.states: dict[str, str] = {}
        self.orders: list[tuple[str, int]] = []  # what to do with which of the jobs
        self.done = False

    def live(self) -> None:
        loom = self._parts.loom
        self._insist(self._upload)
        for number, wish in enumerate(self._wishes):
            loom.sleep(loom.random.uniform(0, 4))
            self.accepted.append(self._insist(partial(self._submit, wish, f"{self.name}-{number}")))
            self._parts.history.note("accepted", self.name, self.accepted[-1])
        while True:
            loom.sleep(LOOK_SEC)
            for order in self._taken():
                self._obey(*order)
            self._insist(self._look)
            self.done = all(over(self.states.get(job_id, "")) for job_id in self.accepted) and not self.orders

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
            Models(session).add("a" * 64, self.name, "made-up", 10)

    def _submit(self, wish: JobIn, key: str) -> str:
        waker = SimpleNamespace(wake=self._parts.broker.send)
        parts: Any = SimpleNamespace(database=self._parts.database, waker=waker, settings=SETTINGS)
        return submit(parts, self.name, wish, key)[0].id

    def _look(self) -> None:
        with self._parts.database.session() as session:
            found = Jobs(session).list(self.name).items
        self.states = {job.id: job.state for job in found}
        for job in found:
            if job.id not in self.seen:
                self.seen.add(job.id)
                self._parts.history.note("listed", self.name, job.id, job.owner)

    def _obey(self, what: str, which: int) -> None:
        if not self.accepted:
            return
        job_id = self.accepted[which % len(self.accepted)]
        try:
            self._insist(partial(self._order, what, job_id))
            self._parts.history.note(what, job_id)
        except Conflict:
            self._parts.history.note(what, job_id, "refused")

    def _order(self, what: str, job_id: str) -> None:
        with self._parts.database.transaction() as session:
            getattr(Jobs(session), what)(job_id, self.name)
            state = Jobs(session).get(job_id, self.name).state
        if what == "resume" and state == JobState.TUNING:
            self._parts.broker.send(queues.PLAN, job_id)


def over(state: str) -> bool:
    """Whether nobody has to do anything about a job any more."""
    return bool(state) and JobState(state).final
