"""The processes of a run: workers, control, and who looks at it from outside."""

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from sqlalchemy import select

from mallorn.core import queues
from mallorn.core.errors import MallornError, NotFound, Unavailable
from mallorn.db.repositories.snapshots import Selection, SnapshotRows
from mallorn.db.tables import Job, Task, Workload
from mallorn.services.control import celery_tasks as control_tasks
from mallorn.workers import celery_tasks as worker_tasks
from mallorn.workers.process.lookout import Lookout
from tests.simulation.benches import Benches
from tests.simulation.broker import Broker, Message
from tests.simulation.clockwork import wall
from tests.simulation.history import History
from tests.simulation.loom import Host, Loom, Process
from tests.simulation.seams import Hand
from tests.simulation.storage import Shared, Storage

DOORS: Final[dict[str, Any]] = {
    queues.PLAN: control_tasks.plan_target_of_job,
    queues.SWEEP: control_tasks.sweep_lost_messages,
    queues.REAP: control_tasks.reap_expired_leases,
    queues.WORK: worker_tasks.do_work,
}
WORKERS: Final = 3
TIMER_SEC: Final = 9.0
EXPIRES_SEC: float | None = None  # after which messages of a timer were dropped
LOOK_SEC: Final = 6.0
TICKS: Final = (queues.SWEEP, queues.REAP)
EVERYTHING: Final = 10_000  # rows of a run, and more


class Lives(Protocol):
    """An owner."""

    def live(self) -> None:
        """All that they do."""


class Parts:
    """Starts processes, and starts them again."""

    def __init__(
        self, storage: Storage, loom: Loom, broker: Broker, benches: Benches, history: History, width: int
    ) -> None:
        """Each worker does `width` rounds and stages at a time."""
        self.width = width
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
        self.processes.append(self._born(Host(name)))
        self._starts.append(begin)
        begin(self.processes[-1])

    def replace(self, place: int) -> None:
        """A new process in the place of a dead one."""
        if not self.processes[place].alive:
            self.processes[place] = self._born(self.processes[place].host)
            self._starts[place](self.processes[place])

    def _born(self, host: Host) -> Process:
        return Process(f"{host.name}#{next(self._numbers)}", self.loom.random.uniform(0.8, 1.25), host)

    def worker(self, process: Process) -> None:
        self.loom.spawn(process, self._work)

    def control(self, process: Process) -> None:
        process.runtime = self.database
        self.loom.spawn(process, lambda: self._serve(control=True))
        self.loom.spawn(process, self._send_ticks, "timer")

    def owner(self, who: Lives, process: Process) -> None:
        self.loom.spawn(process, who.live)

    def stranger(self, process: Process) -> None:
        self.loom.spawn(process, self._pry)

    def _work(self) -> None:
        process = self.loom.process
        process.runtime = Hand(self.database, process.name, self.benches)
        process.runtime.roll_call.start("")
        Lookout(process.runtime, self.broker.send).start()
        process.runtime.places.width = self.width
        process.runtime.roll_call.report_width(self.width)
        for _ in range(self.width - 1):
            self.loom.spawn(process, lambda: self._serve(control=False), "place")
        self._serve(control=False)

    def _serve(self, control: bool) -> None:
        while True:
            message = self.broker.take(control)
            if message.expires is not None and wall(self.loom) > message.expires:  # as Celery has it
                self.history.note("expired", message.name)
            elif message.name in DOORS:
                self._do(message)
                self.loom.step()

    def _do(self, message: Message) -> None:
        name, args = message.name, message.args
        self.history.note("begin", name, *args)
        try:
            DOORS[name](*args)
        except (MallornError, NotFound) as error:
            self.history.note("broke off", name, *args, type(error).__name__)
        except (Exception, SystemExit) as error:
            self.history.note("raised", name, *args, type(error).__name__, str(error)[:300])

    def _send_ticks(self) -> None:
        while True:
            for task in TICKS:
                self.broker.send(task, expires_sec=EXPIRES_SEC)
            self.loom.sleep(TIMER_SEC)

    def _pry(self) -> None:
        """Read what anybody may take away, and compare it with what was brought for everybody."""
        while True:
            self.loom.sleep(LOOK_SEC)
            with suppress(Unavailable), self.database.session() as session:
                brought = select(Workload.key).join(Task).join(Job, Job.id == Task.job_id).where(~Job.private)
                known = set(session.scalars(brought))
                for name in sorted({*SnapshotRows(session).page(Selection(), 0, EVERYTHING)["workload"]}):
                    self.history.note("exported", name, name in known)
