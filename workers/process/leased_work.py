"""Leased work: claims a round or stage, renews its lease and releases it at the end."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

from sqlalchemy.orm import Session

from mallorn.core.artifact_uris import model_uri, open_artifact
from mallorn.core.check_plugin_classes import check_allowed_classes, check_base_classes
from mallorn.core.errors import ClassRefused, HostFault, LeaseLost, MallornError, StorageFull, UnknownName
from mallorn.core.job_options import JobOptions, KeptOptions
from mallorn.core.log_setup import add_log_facts, log_facts
from mallorn.core.os_errors import explain_os_error
from mallorn.core.states import JobState, Waiting, WorkKind
from mallorn.core.targets import Target
from mallorn.core.values.dataset import SAMPLES
from mallorn.core.values.event import JobEvent
from mallorn.core.values.graph_report import GraphReport
from mallorn.core.values.job import JobStep
from mallorn.db.repositories.claim_and_release_work import WorkerAbility, WorkItems
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import STATES, Jobs
from mallorn.db.repositories.leases import Leases, LeaseToken, WorkItem
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.tables import Job
from mallorn.workers.device.device_class import DeviceClass
from mallorn.workers.host.code_digest import have_sources_changed
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.process.lease_renewal import LeaseKeeper
from mallorn.workers.process.match_devices_and_builder import class_of_job
from mallorn.workers.process.retry_rules import PROPOSING, retry_rule_for
from mallorn.workers.process.unpack_model import check_disk_space, unpack
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.sandbox.untrusted_files import untrusted_folder
from mallorn.workers.subprocesses.errors import ChildError, suggest_next_step
from mallorn.workers.subprocesses.shutdown import STOP

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeasedWork:
    """A round or a stage whose lease this worker holds."""

    runtime: Runtime
    hold: LeaseToken
    job: Job  # as the claim read it
    lease: LeaseKeeper
    description: str = ""  # what the fleet page shows, as `begin` returned it

    @property
    def work_name(self) -> str:
        return STATES.get(self.hold.item.kind, "the round")


Begin = Callable[[Session, LeaseToken], str]


@contextmanager
def leased_work(
    runtime: Runtime, wanted: WorkItem | WorkerAbility, begin: Begin | None = None
) -> Iterator[LeasedWork | None]:
    """Hold a lease for the block, on an item or on the best work that this worker can do;
    yield None if nothing can be claimed or run.

    `begin` runs in the transaction of the claim, and describes the work. If the block
    raises, `retry_rules` decides whether the work is retried, returned or given up.
    """
    unreadable = _stop_if_code_replaced()
    with log_facts():  # `_claim` adds facts of this work only
        work = None if STOP.requested.is_set() else _claim(runtime, wanted, begin, unreadable)
        if work is None:
            yield None
            return
        runtime.places.held.add(work.hold)
        try:
            with work.lease:
                yield work
        except MallornError as error:
            _release(work, error)
        except Exception as error:
            if (host_error := explain_os_error(error)) is not None:
                _release(work, host_error)
                return
            # A bug in Mallorn: the lease expires, and the work is retried a few times.
            words = f"{type(error).__name__} in {work.work_name}: {error}"
            with runtime.database.transaction() as session:
                Jobs(session).set_waiting(work.job.id, Waiting(f"{words}; the worker's log has the details"))
            raise
        finally:
            runtime.places.held.discard(work.hold)


def _stop_if_code_replaced() -> MallornError | None:
    """Stop this worker if its code was replaced. Return the host's fault if it cannot be read."""
    try:
        if have_sources_changed():
            STOP.stop_for_replaced_code()
    except OSError as error:
        return explain_os_error(error) or HostFault(f"the code of this worker cannot be read: {error}")
    return None


def _claim(
    runtime: Runtime,
    wanted: WorkItem | WorkerAbility,
    begin: Begin | None,
    host_fault: MallornError | None,
) -> LeasedWork | None:
    """Claim work; release it at once if a fault of the host or its own options prevent it."""
    lease_sec = runtime.settings.lease_sec
    with runtime.database.transaction() as session:
        if isinstance(wanted, WorkItem):
            hold = WorkItems(session).claim(wanted, runtime.name, lease_sec)
        else:
            hold = WorkItems(session).claim_best(wanted, runtime.name, lease_sec)
        if hold is None:
            return None
        if hold in runtime.places.held:  # the database was restored, and another place goes on
            WorkItems(session).return_work(hold, LeaseLost())  # by which that one loses its lease
            return None
        job = Jobs(session).get(hold.job_id, None)
        options = KeptOptions.model_validate(job.options)
        round_fact = {"round": int(hold.item.subject)} if hold.item.kind is WorkKind.ROUND else {}
        add_log_facts(job=job.id, attempt=hold.attempt, **round_fact)
        description = "" if begin is None else begin(session, hold)

    def renew() -> bool:
        with runtime.database.transaction() as session:
            return Leases(session).renew(hold, lease_sec)

    work = LeasedWork(runtime, hold, job, LeaseKeeper(renew, lease_sec), description)
    try:
        if host_fault is not None:
            raise host_fault
        options.check_all_readable()
        check_allowed_classes(options, runtime.settings.plugins)
        check_base_classes(options, PROPOSING)
    except (ClassRefused, UnknownName, HostFault, StorageFull) as error:
        _release(work, error)
        return None
    return work


def _release(work: LeasedWork, error: MallornError) -> None:
    if isinstance(error, ChildError):
        error.hint = suggest_next_step(error, work.runtime.settings)
    if isinstance(error, (HostFault, StorageFull)):
        error.message = f"on {gethostname()}: {error.message}"
        work.runtime.health.record_fault(error)
    rule = retry_rule_for(error, work.hold.item.kind)
    log.log(rule.level, "%s %s: %s", work.work_name, rule.words, error)
    if rule.act is not None:
        with work.runtime.database.transaction() as session:
            rule.act(WorkItems(session), work.hold, error)


@dataclass(frozen=True, slots=True)
class StageFolder:
    """Folders of a stage. Only the worker writes to `path`, and each child process to a
    folder of its own: no child can replace a file of the worker or of another child."""

    path: Path
    answers: Path  # written by the runner

    @property
    def compiler_folder(self) -> Path:
        return self.path / "graphs"


@contextmanager
def stage_folder(runtime: Runtime, prefix: str) -> Iterator[StageFolder]:
    """Yield new folders for a stage and remove them when the block ends."""
    with (
        untrusted_folder(prefix, runtime.room) as path,
        untrusted_folder(prefix, runtime.runner_folder) as answers,
    ):
        folder = StageFolder(path, answers)
        folder.compiler_folder.mkdir()
        yield folder


@dataclass(frozen=True, slots=True)
class LeasedStage:
    """A stage of a job that this worker runs, with its inputs and the lease on it."""

    runtime: Runtime
    job: Job
    state: JobState
    target: Target
    options: JobOptions
    hold: LeaseToken
    lease: LeaseKeeper

    def copy_model_files(self, directory: Path) -> Path:
        """Copy the job's model and weight files into `directory`; return the ONNX file's
        path. Raises InvalidModel if the upload is damaged, NotFound if it is missing,
        StoreAway if the artifact store does not answer, StorageFull if the disk is full."""
        check_disk_space(directory, self._model_bytes)
        uri = model_uri(self.runtime.settings.artifacts, self.job.model_id)
        with open_artifact(uri) as (store, path), store.open(path, "rb") as model:
            return unpack(model, directory)

    def find_samples(self, model: Path) -> Path | None:
        """Return the file of inputs that came with the model's files, if any."""
        samples = model.parent / SAMPLES
        return samples if samples.is_file() else None

    @property
    def measurer_name(self) -> str:
        """Name of the target's virtual device if any, else of the job's measurer."""
        return self.target.virtual_device or self.options.measurer

    def start_model_compiler(self, folder: StageFolder) -> ModelCompiler:
        # A GPU target has no cores; reference outputs for its checks are computed on this host.
        threads = self.target.num_cores if self.target.runs_on_cores else len(os.sched_getaffinity(0))
        return self.runtime.start_model_compiler(threads, self._model_bytes, folder.compiler_folder)

    @property
    def _model_bytes(self) -> int:
        with self.runtime.database.session() as session:
            return Models(session).get(self.job.model_id, None).size_bytes

    @property
    def device_class(self) -> DeviceClass | None:
        """Class of devices with times comparable to the job's; None: any device."""
        with self.runtime.database.session() as session:
            return class_of_job(session, self.job)

    @property
    def graph_report(self) -> GraphReport:
        """The graph report of the job's import; an empty report before the import."""
        return self.job.graph or GraphReport()

    def set_step(self, name: str) -> None:
        """Show what is done for the job now."""
        with self.runtime.database.transaction() as session:
            Jobs(session).set_step(self.job.id, JobStep(name=name))

    def end_stage(self, session: Session, state: JobState, because: str, event: JobEvent) -> None:
        """Move the job to another state and store an event, in the caller's transaction.
        Raises LeaseLost if another worker has the stage."""
        if not Jobs(session).move_to_state(self.job.id, [self.state], state, because, hold=self.hold):
            raise LeaseLost
        Events(session).append(self.job.id, event)


def stage_of(work: LeasedWork) -> LeasedStage:
    state = STATES[work.hold.item.kind]
    log.info("%s begins", state)
    with work.runtime.database.session() as session:
        target = Target(Targets(session).get(work.job.target_id).text)
    options = KeptOptions.model_validate(work.job.options)
    return LeasedStage(work.runtime, work.job, state, target, options, work.hold, work.lease)
