"""What is put in the place of TVM's children, Celery's broker, threads and time while a run lasts."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from random import Random
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from mallorn.core.settings import Settings
from mallorn.core.targets import parse_target
from mallorn.core.values.dataset import ScheduleScripts
from mallorn.core.values.graph_report import GraphReport
from mallorn.db.repositories.control_loop_ticks import LoopTicks
from mallorn.db.repositories.leases import Leases
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.session import read_clock
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.services.control.plan_target import plan_target
from mallorn.services.control.wait_for_device import WaitLimit
from mallorn.workers.finish.build_final_schedules import FinalSchedules
from mallorn.workers.host.code_digest import code_digest, current_builder_name
from mallorn.workers.interfaces.model_compiler import Extraction, ModelCompiler, ModelTask
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.tracked_devices import Fleet
from mallorn.workers.process.leased_work import StageFolder
from mallorn.workers.process.places import Places
from mallorn.workers.process.worker_health import Health
from mallorn.workers.process.worker_runtime import Runtime
from tests.fixtures.workshop import MadeUpCompiler, MadeUpGraphs
from tests.simulation.benches import NAME, Bench, Benches, verifier_of
from tests.simulation.broker import Broker
from tests.simulation.clockwork import Threading, Time
from tests.simulation.fleet import EVERY_SEC, QuietRollCall, Tracker
from tests.simulation.history import History
from tests.simulation.loom import Loom
from tests.simulation.policies import IN_ORDER, NAMES
from tests.simulation.storage import Shared
from tests.simulation.store import URL, Shelf, stored_at
from tests.simulation.versions import versions_mixed

COMPILER: Final = MadeUpCompiler(SyntheticSpace(16, 16, 16))
TARGET: Final = parse_target('{"kind":"llvm","num-cores":2}')
SETTINGS: Final = Settings(
    lease_sec=12.0, device_wait_sec=90.0, plugins=[NAME, IN_ORDER, *NAMES], artifacts=URL
)
IMPORT_SEC: Final = 1.0
#: Modules that wait, or tell how long something took.
WAITING: Final = (
    "mallorn.workers.process.lease_renewal.threading",
    "mallorn.workers.process.heartbeat.threading",
    "mallorn.workers.process.lookout.threading",
)
TIMED: Final = (
    "mallorn.workers.round.run.time",
    "mallorn.workers.finish.run.time",
    "mallorn.workers.finish.order_candidates.time",
    "mallorn.workers.process.time_slice.time",
    "mallorn.workers.process.worker_health.time",
    "mallorn.workers.process.heartbeat.time",
    "mallorn.workers.process.lookout.time",
    "mallorn.workers.hardware_probe.run.time",
)
Extracted = dict[str, tuple[str, ...]]


class Hand(Runtime):
    """A worker's runtime whose children are made up."""

    room = Path(gettempdir())  # type: ignore[assignment]  # in which nothing is written

    def __init__(self, database: Shared, name: str, benches: Benches) -> None:
        self.settings = SETTINGS
        self.database = database
        self.name = name
        self.tunes = True
        self.places = Places(lambda: self)
        self.benches = benches
        self.fleet = Fleet(SETTINGS)
        self.roll_call = QuietRollCall(database, self.fleet, name)
        self.health = Health(self.roll_call.report_pause, lambda: self.tunes)

    def adapt_width(self, meter: Any, size: int) -> None:
        """Its width is that of the run."""

    @property
    def compiler(self) -> Any:
        return COMPILER

    def tools(self, like: Any) -> Any:
        return self.benches

    def measurer(self, options: Any, like: Any = None) -> Bench:
        return Bench(self.benches, like)

    def validator(self, options: Any) -> Any:
        return COMPILER.validate

    def lower(self, *call: Any) -> Any:
        return COMPILER.compute_lowered_features(*call)

    def warm_up(self, job_id: str) -> None:
        """There is no process to start."""

    def start_model_compiler(self, threads: int, model_bytes: int, folder: Path) -> ModelCompiler:
        return MadeUpGraphs({"scripts": ScheduleScripts(original="", scheduled="", trace="")})


@contextmanager
def made_up(loom: Loom, broker: Broker, benches: Benches, history: History, shelf: Shelf) -> Iterator[None]:
    """The seams of one run."""

    def fell(name: str, error: Exception) -> None:
        history.note("fell", name, type(error).__name__, str(error)[:300])

    threads, time = Threading(loom, fell), Time(loom)
    ids = Random(loom.random.random())
    here = SimpleNamespace(hold_shared=nullcontext, hold_exclusive=lambda: nullcontext(True))
    changes: dict[str, Any] = {
        **dict.fromkeys(WAITING, threads),
        **dict.fromkeys(TIMED, time),
        "mallorn.workers.process.worker_health.Lock": threads.Lock,
        "mallorn.workers.celery_tasks.runtime": lambda: loom.process.runtime,
        "mallorn.workers.celery_tasks.send_task": broker.send,
        "mallorn.services.control.celery_tasks.plan_target": lambda database, job_id, _holder, patience: (
            plan_target(database, job_id, loom.process.name, patience)
        ),
        "mallorn.services.control.celery_tasks.database": lambda: loom.process.runtime,
        "mallorn.services.control.celery_tasks.send": broker.send,
        "mallorn.services.control.plan_job.settings": lambda: SETTINGS,
        "mallorn.services.control.celery_tasks.PATIENCE": WaitLimit(SETTINGS.device_wait_sec),
        "mallorn.db.repositories.jobs.secrets": SimpleNamespace(
            token_hex=lambda size: f"{ids.getrandbits(64):016x}"
        ),
        "mallorn.workers.process.leased_work.check_disk_space": lambda *_: None,
        "mallorn.workers.process.leased_work.unpack": lambda stored, _folder: stored.read(),
        "mallorn.workers.model_import.run.extract_tasks": _extract(loom, benches),
        "mallorn.workers.process.worker_health.find_host_fault": lambda _tunes: benches.ails(),
        "mallorn.workers.process.heartbeat.EVERY_SEC": EVERY_SEC,
        "mallorn.workers.process.heartbeat.host_id": lambda: loom.process.host.name,
        "mallorn.workers.measure.tracked_devices.TrackerClient": lambda *_address, **_key: Tracker(
            benches, TARGET
        ),
        "mallorn.workers.round.run.HostLock": lambda: here,
        "mallorn.workers.round.run.PROPOSING": nullcontext(),
        "mallorn.workers.process.worker_runtime.HostLock": lambda: here,
        "mallorn.workers.hardware_probe.run.measure_machine": lambda *_: (
            None,
            "nothing is measured in a simulation",
        ),
        "mallorn.workers.finish.run.Verifier": verifier_of(benches),
        "mallorn.core.job_options.ON_DEVICES": frozenset({NAME}),
        "mallorn.workers.process.time_slice.TURN_SEC": 0.0,
        "mallorn.workers.process.time_slice.WAITED_SEC": 0.0,
        "mallorn.workers.finish.run.stage_folder": lambda *_: nullcontext(StageFolder(Path(), Path())),
        "mallorn.workers.finish.run.JobModel": _Model,
        "mallorn.workers.finish.decide.write_records_only": lambda model, winners: FinalSchedules(
            winners, _Nowhere()
        ),
        "mallorn.workers.finish.export_directory.complete_export": lambda *_: None,
    }
    with ExitStack() as stack:
        for name, value in changes.items():
            stack.enter_context(patch(name, value))
        for change in _witnesses(history):
            stack.enter_context(change)
        stack.enter_context(stored_at(shelf))
        stack.enter_context(versions_mixed(loom))
        yield


class _Nowhere(type(Path())):  # type: ignore[misc]
    """A folder whose files go nowhere."""

    def __truediv__(self, other: Any) -> "_Nowhere":
        return self

    def write_text(self, *_args: Any, **_more: Any) -> int:
        return 0

    def read_bytes(self) -> bytes:
        return b'{"target": "llvm", "recipe": {"name": "tuned"}}'

    def iterdir(self) -> Iterator[Path]:
        yield Path("report.json")


class _Model:
    """In place of a JobModel: the job, and no model."""

    def __init__(self, stage: Any, graphs: Any) -> None:
        self.stage = stage
        self.whole_model = SimpleNamespace(graphs=graphs)

    @classmethod
    def of(cls, stage: Any, graphs: Any, *_given: Any) -> "_Model":
        return cls(stage, graphs)


def _extract(loom: Loom, benches: Benches) -> Any:
    def extract(stage: Any) -> Extraction:
        benches.check_disk()
        stage.copy_model_files(stage.runtime.room)
        loom.sleep(IMPORT_SEC)
        names = stage.job.name.split("+")
        tasks = [
            ModelTask(name, place + 1, name, "made-up", "s0", 1e4, "{}", Arguments(()), (16, 16, 16))
            for place, name in enumerate(names)
        ]
        told = {"recipe": {"name": "tuned"}, "inputs": [], "outputs": [], "code": code_digest()}
        report = GraphReport.model_validate(told)
        return Extraction(report, tuple(tasks))

    return extract


def _witnesses(history: History) -> Iterator[Any]:
    """The product's own methods, which tell the history what they did if their transaction commits."""
    claim, renew, change, lose = Leases.claim, Leases.renew, Leases._change, Leases._free_and_count_losses
    store = Rounds.store_proposals
    rest, add_trials, pull_back = Leases.close_work, Measurements.add_trials, LoopTicks.correct_future_times

    def claimed(self: Leases, item: Any, holder: str, lease_sec: float) -> Any:
        hold = claim(self, item, holder, lease_sec)
        if hold is not None:
            until = self.get(item).until or 0.0
            history.when_committed("claim", item.kind, item.subject, hold.attempt, until - lease_sec, until)
        return hold

    def renewed(self: Leases, hold: Any, lease_sec: float) -> bool:
        kept = renew(self, hold, lease_sec)
        if kept:
            until = self.get(hold.item).until
            history.when_committed("renew", hold.item.kind, hold.item.subject, hold.attempt, until)
        return kept

    def changed(self: Leases, hold: Any, **values: Any) -> bool:
        done = change(self, hold, **values)
        if done and values.get("until", 0) is None:
            history.when_committed(
                "release", hold.item.kind, hold.item.subject, hold.attempt, "by its holder"
            )
        return done

    def lost(self: Leases, which: Any, *counting: Any) -> Any:
        losses = lose(self, which, *counting)
        for loss in losses:
            item = loss.hold.item
            history.when_committed("release", item.kind, item.subject, loss.hold.attempt, "as lost")
        return losses

    def rested(self: Leases, kinds: Any, subjects: Any) -> None:
        for kind in sorted(kinds):
            for subject in sorted(subjects):
                history.when_committed("rest", kind, subject)
        rest(self, kinds, subjects)

    def added(self: Measurements, hold: Any, rows: Any) -> int:
        new, slots = add_trials(self, hold, rows), tuple(row.slot for row in rows)
        history.when_committed("commit", int(hold.item.subject), hold.attempt, slots, new)
        contexts = sorted({row.context_id for row in rows if row.context_id is not None})
        history.when_committed("built", current_builder_name(), tuple(contexts))
        return new

    def pulled(self: LoopTicks, lease_sec: float) -> None:
        pull_back(self, lease_sec)
        history.when_committed("pull", read_clock(self.session) + lease_sec)

    def stored(self: Rounds, hold: Any, *given: Any, **values: Any) -> bool:
        is_stored = store(self, hold, *given, **values)
        if is_stored:
            history.when_committed("propose", int(hold.item.subject), hold.attempt)
        return is_stored

    yield patch.object(Rounds, "store_proposals", stored)
    yield patch.object(LoopTicks, "correct_future_times", pulled)
    yield patch.object(Leases, "claim", claimed)
    yield patch.object(Leases, "renew", renewed)
    yield patch.object(Leases, "_change", changed)
    yield patch.object(Leases, "_free_and_count_losses", lost)
    yield patch.object(Leases, "close_work", rested)
    yield patch.object(Measurements, "add_trials", added)
