"""What a worker process keeps between tasks: its database, its warm children and its place in the fleet."""

import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, lru_cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from db.repositories.fleet_activity import StageRuns
from db.repositories.jobs import Jobs
from db.repositories.targets import Targets
from db.session import Database
from mallorn.core.job_options import LARGEST_ROUND, JobOptions
from mallorn.core.locked_folders import remove_tree
from mallorn.core.registry import resolve
from mallorn.core.settings import Settings, settings
from mallorn.core.stand_in_measurers import stand_in
from mallorn.core.states import StageKind
from mallorn.core.targets import Target
from workers.device.detect_host import available_cores
from workers.device.device_class import DeviceClass
from workers.host.host_lock import HostLock
from workers.host.host_memory import total_bytes
from workers.interfaces.candidate_compiler import CandidateCompiler, Validate
from workers.interfaces.device_runner import Runner
from workers.interfaces.model_compiler import ModelCompiler
from workers.measure.base import Measurer, Tools
from workers.measure.tracked_devices import Fleet
from workers.measure.validate_candidates import validate
from workers.process.heartbeat import Heartbeat
from workers.process.worker_health import Health
from workers.sandbox.landlock import READ, WRITE
from workers.sandbox.sandbox_support import reached
from workers.subprocesses.process_pool import ChildPool

# The folders of the builders and of the runner, and what zig keeps for the next process of a whole model.
BUILDS, RUNS, ZIG = "builds", "runs", "zig"
MAX_CALLS = 500  # then a process is replaced: TVM's arenas never shrink
# Of a model's weights in a process that compiles it, mapped files and buffers that grow among them.
COPIES = 8
BUILDER_BYTES = 1 << 30  # that compiling a large candidate takes


def builders_here() -> int:
    """One a core, as far as quota and memory allow, and no more than a round has candidates."""
    return max(1, min(available_cores(), total_bytes() // BUILDER_BYTES, LARGEST_ROUND))


class Runtime:
    """Everything is opened on first use, after the process has started. This process never imports TVM."""

    def __init__(self, config: Settings) -> None:
        self.settings = config
        self.database = Database(config.database_url)
        self.fleet = Fleet(config)
        self.name = f"{socket.gethostname()}-{os.getpid()}-{int(time.time())}"
        self.tunes = True  # rounds are run here; else this slot only imports
        self.carries_batches = False  # whether it may hold the rounds of jobs whose device is detached
        self.roll_call = Heartbeat(self.database, self.fleet, self.name)

    @cached_property
    def health(self) -> Health:
        """Whether this worker's host lets it work."""
        return Health(lambda why: self.roll_call.rests(why), lambda: self.tunes)

    @cached_property
    def room(self) -> Path:
        """The folder for all files of this worker's children, each of which writes a folder in it alone."""
        folder = Path(mkdtemp(prefix="mallorn-room-"))
        self._leave_room = weakref.finalize(self, remove_tree, folder)
        for place in (BUILDS, RUNS, ZIG):
            (folder / place).mkdir()
        return folder

    @property
    def _readable(self) -> tuple[tuple[str, int], ...]:
        """The paths that the runner and engines may read: files of the job by other processes."""
        return ((str(self.room), READ),)

    @property
    def builds(self) -> Path:
        """The folder that the builders and the compiler write."""
        return self.room / BUILDS

    @property
    def runs(self) -> Path:
        """The folder that the runner writes."""
        return self.room / RUNS

    @cached_property
    def builders(self) -> ChildPool[Any]:
        """Processes that compile candidates."""
        size = self.settings.builders or builders_here()
        memory, room = self.settings.child_memory_bytes, self.builds
        return ChildPool(
            CandidateCompiler, size, memory_bytes=memory, max_calls=MAX_CALLS, name="builder", room=room
        )

    @cached_property
    def compiler(self) -> CandidateCompiler:
        """The process that knows spaces: sketches, validity, full traces."""
        memory = self.settings.child_memory_bytes
        return CandidateCompiler(memory_bytes=memory, max_calls=MAX_CALLS, name="compiler", room=self.builds)

    @cached_property
    def runner(self) -> Runner:
        """The process that holds the RPC session with a device."""
        return Runner(key=self.settings.fleet_key, name="runner", room=self.runs, others=self._readable)

    def release_device(self) -> None:
        """Give the device back, if this worker holds one."""
        if "runner" in self.__dict__ and self.runner.alive:
            self.runner.release()

    def validator(self, target: Target) -> Validate:
        """Who answers which candidates can be rebuilt: those who will build them, if anybody does."""
        return self.compiler.validate if stand_in(target) else partial(validate, self.builders)

    def tools(self, like: DeviceClass | None) -> Tools:
        return Tools(self.settings, self.builders, self.runner, self.builds, like)

    def measurer(self, options: JobOptions, like: DeviceClass | None = None) -> Measurer:
        """What builds and times a job's candidates, on devices of this class alone where one is named.

        Raises PluginFailed, InvalidRequest.
        """
        found: Measurer = resolve("measurer", options.measurer).from_tools(self.tools(like))
        return found

    def warm_up(self, job_id: str) -> None:
        """Start what a job's first round needs while something else still goes on; where rounds are run."""
        if not self.tunes:
            return
        self.compiler.start()
        with self.database.session() as session:
            job = Jobs(session).get(job_id, None)
            target = Targets(session).get(job.target_id)
        if job.trials != 0 and not stand_in(Target(target.text)):
            self.builders.start()

    def graphs(self, threads: int, model_bytes: int, folder: Path) -> ModelCompiler:
        """A new process for a whole model, which TVM may run on `threads` threads; it is starting already.

        It writes `folder`.
        """
        zig = str(self.room / ZIG)
        env = {"TVM_NUM_THREADS": str(threads), "ZIG_GLOBAL_CACHE_DIR": zig}
        memory = self.settings.child_memory_bytes + COPIES * model_bytes
        others = *self._readable, (zig, WRITE)
        graphs = ModelCompiler(env=env, memory_bytes=memory, name="graphs", room=folder, others=others)
        graphs.start()
        return graphs

    def enlist(
        self,
        tunes: bool,
        met: Callable[[str], None],
        tidy: Callable[[], None],
        plan: Callable[[str], None],
    ) -> None:
        """Set whether this slot tunes, and report it to the fleet as `Heartbeat.start` describes."""
        self.tunes = tunes
        self.roll_call.start(reached(self.settings.sandbox_mode()), tunes, met, tidy, plan)

    @contextmanager
    def working_on(self, what: str) -> Iterator[None]:
        """Show what this worker does while it does it."""
        self.roll_call.busy_with(what)
        try:
            yield
        finally:
            self.roll_call.busy_with("")

    @contextmanager
    def stage_run(self, kind: StageKind, job_id: str, what: str) -> Iterator[None]:
        """The same for what is no round, and is kept: the fleet's timeline shows it.

        A training shares the host as a whole; a finish step by step, as it waits for devices in between; an
        import stops whenever somebody times (workers.host.pause_while_timing).
        """
        trains = kind is StageKind.TRAIN
        share: AbstractContextManager[object] = HostLock().shared() if trains else nullcontext()
        with self.database.transaction() as session:
            run_id = StageRuns(session).begin(job_id, kind, self.name)
        try:
            with self.working_on(what), share:
                yield
        finally:
            with self.database.transaction() as session:
                StageRuns(session).end(run_id)

    def close(self) -> None:
        """End every child."""
        self.roll_call.stop()
        if "builders" in self.__dict__:
            self.builders.close()
        for name in ("compiler", "runner"):
            if name in self.__dict__:
                getattr(self, name).kill()
        if "room" in self.__dict__:
            self._leave_room()
        self.database.dispose()


@lru_cache
def runtime() -> Runtime:
    return Runtime(settings())
