"""The stages of a job, import and finish, each run by a single worker under a lease."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from mallorn.core.artifact_uris import model_uri, open_artifact
from mallorn.core.errors import LeaseLost
from mallorn.core.job_options import JobOptions, KeptOptions
from mallorn.core.states import JobState
from mallorn.core.targets import Target
from mallorn.core.values.dataset import SAMPLES
from mallorn.core.values.event import JobEvent
from mallorn.core.values.graph_report import GraphReport
from mallorn.core.values.job import JobStep
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import STAGES, Jobs
from mallorn.db.repositories.leases import LeaseToken, WorkItem
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.tables import Job
from mallorn.workers.device.device_class import DeviceClass
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.process.lease_renewal import LeaseKeeper
from mallorn.workers.process.leased_work import LeasedWork, leased_work
from mallorn.workers.process.match_devices_and_builder import class_of_job
from mallorn.workers.process.unpack_model import check_disk_space, unpack
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.sandbox.untrusted_files import untrusted_folder

log = logging.getLogger(__name__)


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
        threads = self.target.num_cores if self.target.is_cpu else len(os.sched_getaffinity(0))
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


@contextmanager
def leased_stage(runtime: Runtime, job_id: str, state: JobState) -> Iterator[LeasedStage | None]:
    """Lease a stage of a job for the block; yield None if it cannot be claimed."""
    has_begun = False
    with leased_work(runtime, WorkItem(STAGES[state], job_id)) as work:
        stage = None if work is None else stage_of(work, state)
        has_begun = True
        yield stage
    if not has_begun:  # the database failed after the claim; `leased_work` released the work
        yield None


def stage_of(work: LeasedWork, state: JobState) -> LeasedStage:
    log.info("%s begins", state)
    with work.runtime.database.session() as session:
        job = Jobs(session).get(work.job_id, None)
        target = Target(Targets(session).get(job.target_id).text)
    options = KeptOptions.model_validate(job.options)
    return LeasedStage(work.runtime, job, state, target, options, work.hold, work.lease)
