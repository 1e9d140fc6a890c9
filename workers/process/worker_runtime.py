"""Resources that a worker keeps between tasks: database, child processes and heartbeat."""

import os
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from functools import cached_property, lru_cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from mallorn.core.job_options import LARGEST_ROUND, JobOptions
from mallorn.core.locked_folders import remove_tree
from mallorn.core.registry import resolve
from mallorn.core.settings import Settings, settings
from mallorn.core.states import StageKind
from mallorn.core.targets import Target
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workers import StageRuns
from mallorn.db.session import Database
from mallorn.workers.device.detect_host import available_cores
from mallorn.workers.device.device_class import DeviceClass
from mallorn.workers.host.host_lock import HostLock
from mallorn.workers.host.host_memory import total_bytes
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler, Candidates, Validate
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.measure.build_candidates import lower_in_builders, validate_in_builders
from mallorn.workers.measure.measurer_interface import Measurer, Tools
from mallorn.workers.measure.tracked_devices import Fleet
from mallorn.workers.process.heartbeat import Heartbeat
from mallorn.workers.process.places import CostMeter, Places
from mallorn.workers.process.worker_health import Health
from mallorn.workers.sandbox.landlock import READ
from mallorn.workers.subprocesses.process_pool import ChildPool

BUILDS, RUNS = "builds", "runs"  # the folders of the builders and of the runner
MAX_CALLS = 500  # then a child process is replaced, because TVM's arenas never shrink
# Memory limit for compiling a model, in multiples of its size: mapped files and buffers count.
COPIES = 8
BUILDER_BYTES = 1 << 30  # memory for compiling a large candidate
RUNNER_BYTES = 1 << 27  # memory of a runner: runners may use half of the host's


def choose_builder_count() -> int:
    """Return the number of builders: one per core, limited by memory and LARGEST_ROUND."""
    return max(1, min(available_cores(), total_bytes() // BUILDER_BYTES, LARGEST_ROUND))


class SharedChildren:
    """The child processes that all places of a worker use, and the folder they write to."""

    def __init__(self, config: Settings) -> None:
        self._settings = config
        self.builder_count = config.builders or choose_builder_count()

    @cached_property
    def room(self) -> Path:
        """The folder for files of child processes; each writes to its own subfolder."""
        folder = Path(mkdtemp(prefix="mallorn-room-"))
        self._leave_room = weakref.finalize(self, remove_tree, folder)
        for place in (BUILDS, RUNS):
            (folder / place).mkdir()
        return folder

    @cached_property
    def builders(self) -> ChildPool[Any]:
        return ChildPool(partial(self._candidate_compiler, "builder"), self.builder_count)

    @cached_property
    def compiler(self) -> CandidateCompiler:
        return self._candidate_compiler("compiler")

    def _candidate_compiler(self, name: str) -> CandidateCompiler:
        memory, room = self._settings.child_memory_bytes, self.room / BUILDS
        return CandidateCompiler(memory_bytes=memory, max_calls=MAX_CALLS, name=name, room=room)

    def close(self) -> None:
        """End every process and remove the folder."""
        if "builders" in self.__dict__:
            self.builders.close()
        if "compiler" in self.__dict__:
            self.compiler.kill()
        if "room" in self.__dict__:
            self._leave_room()


class Runtime:
    """Resources of a worker process, each opened on first use. It never imports TVM.

    The places of the worker (`places`), one for each round or stage that it does at a time,
    share all of them but the runner. Each begins tasks only on its part of the builders.
    """

    def __init__(self, config: Settings) -> None:
        self.settings = config
        self.database = Database(config.database_url)
        self.fleet = Fleet(config)
        self.name = f"{socket.gethostname()}-{os.getpid()}-{int(time.time())}"
        self.tunes = True  # True if this worker runs rounds; False if it only imports models
        self.children = SharedChildren(config)
        self.places = Places(self._at_another_place, total_bytes() // (2 * RUNNER_BYTES))
        self.roll_call = Heartbeat(self.database, self.fleet, self.name)
        self.health = Health(lambda reason: self.roll_call.report_pause(reason), lambda: self.tunes)

    def _at_another_place(self) -> "Runtime":
        place = copy(self)
        for own in ("builders", "runner"):
            place.__dict__.pop(own, None)
        return place

    @property
    def is_free(self) -> bool:
        """Whether this worker could begin more work now."""
        return self.places.taken < self.places.width and not self.health.is_resting

    def adapt_width(self, meter: CostMeter, size: int) -> None:
        """Do as many rounds at a time as rounds like this one, of `size`, need."""
        self.places.adapt_width(meter, size, self.children.builder_count)

    @property
    def room(self) -> Path:
        return self.children.room

    @property
    def _readable(self) -> tuple[tuple[str, int], ...]:
        """Paths that the runner and engines may read: files written by other children."""
        return ((str(self.room), READ),)

    @property
    def builder_folder(self) -> Path:
        """The folder that the builders and the compiler write to."""
        return self.room / BUILDS

    @property
    def runner_folder(self) -> Path:
        return self.room / RUNS

    @cached_property
    def builders(self) -> ChildPool[Any]:
        return self.children.builders.share()

    @property
    def compiler(self) -> CandidateCompiler:
        """Process that derives design spaces: sketches, valid candidates, full traces."""
        return self.children.compiler

    @cached_property
    def runner(self) -> Runner:
        """Process that holds the RPC session with a device."""
        return Runner(
            key=self.settings.fleet_key, name="runner", room=self.runner_folder, others=self._readable
        )

    def release_device(self) -> None:
        if "runner" in self.__dict__ and self.runner.alive:
            self.runner.release_devices()

    def validator(self, target: Target) -> Validate:
        """Return the validator: the builders or, for virtual devices, the compiler."""
        if target.virtual_device:
            return self.compiler.validate
        return partial(validate_in_builders, self.builders)

    def lower(self, view: str, tir: str, target: str, candidates: Candidates) -> list[bytes | None]:
        """Return candidates' features as the compiler does, but computed by the builders,
        if the target has any. They must have no other tasks of this place."""
        if Target(target).virtual_device:
            return self.compiler.compute_lowered_features(view, tir, target, candidates)
        return lower_in_builders(self.builders, view, tir, target, candidates)

    def tools(self, like: DeviceClass | None) -> Tools:
        return Tools(self.settings, self.builders, self.runner, self.builder_folder, like)

    def measurer(self, options: JobOptions, like: DeviceClass | None = None) -> Measurer:
        """Return the job's measurer, restricted to devices of the class `like` if given.
        Raises PluginFailed if its class cannot be loaded, InvalidRequest if its name is
        unknown."""
        measurer: Measurer = resolve("measurer", options.measurer).from_tools(self.tools(like))
        return measurer

    def warm_up(self, job_id: str) -> None:
        """Start the children that a job's first round needs, if this worker runs rounds."""
        if not self.tunes:
            return
        self.compiler.start()
        with self.database.session() as session:
            job = Jobs(session).get(job_id, None)
            target = Targets(session).get(job.target_id)
        if job.trials != 0 and not Target(target.text).virtual_device:
            self.builders.start()

    def start_model_compiler(self, threads: int, model_bytes: int, folder: Path) -> ModelCompiler:
        """Start a model compiler process of `threads` threads, which writes to `folder`."""
        env = {"TVM_NUM_THREADS": str(threads)}
        memory = self.settings.child_memory_bytes + COPIES * model_bytes
        graphs = ModelCompiler(
            env=env, memory_bytes=memory, name="graphs", room=folder, others=self._readable
        )
        graphs.start()
        return graphs

    @contextmanager
    def working_on(self, task: str) -> Iterator[None]:
        """Report `task` as a current task of this worker while the block runs."""
        self.roll_call.begin_task(task)
        try:
            yield
        finally:
            self.roll_call.end_task(task)

    @contextmanager
    def stage_run(self, kind: StageKind, job_id: str, task: str) -> Iterator[None]:
        """Report that the worker imports, trains or finishes during the block, and store
        the span.

        A training holds a share of the host lock throughout. A finish takes it step by
        step, because it waits for devices in between. An import takes no share and pauses
        during timing (mallorn.workers.host.pause_while_timing).
        """
        trains = kind is StageKind.TRAIN
        share: AbstractContextManager[object] = HostLock().hold_shared() if trains else nullcontext()
        with self.database.transaction() as session:
            run_id = StageRuns(session).begin(job_id, kind, self.name)
        try:
            with self.working_on(task), share:
                yield
        finally:
            with self.database.transaction() as session:
                StageRuns(session).end(run_id)

    def close(self) -> None:
        """Stop the heartbeat, end every child process and close the database."""
        self.roll_call.stop()
        for place in (self, *self.places.all):
            if "runner" in place.__dict__:
                place.runner.kill()
        self.children.close()
        self.database.dispose()


@lru_cache
def runtime() -> Runtime:
    return Runtime(settings())
