"""A job's whole model: compile it with sets of schedules, and time it on the job's device."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

from mallorn.core.artifact_uris import job_exports_uri, open_artifact
from mallorn.core.errors import MallornError
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.manifest import DATABASE, Manifest
from mallorn.workers.finish.choose_winner import Times, Winner, add_inside_times
from mallorn.workers.finish.compiled_library_cache import KnownLibraries
from mallorn.workers.finish.export_directory import ExportFailed, largest_shapes, reserve_export_uri
from mallorn.workers.finish.shape_dispatch import dispatch_to_next_size
from mallorn.workers.finish.step_log import StepLog
from mallorn.workers.host.background_load import run_load_programs
from mallorn.workers.host.host_lock import HostLock
from mallorn.workers.host.host_memory import is_large
from mallorn.workers.interfaces.model_compiler import REGION, Compiled, ModelCompiler, Tuned
from mallorn.workers.interfaces.whole_model_engine import NodeDifference
from mallorn.workers.measure.tracked_devices import of_class, runs_here, shares_locks
from mallorn.workers.process.leased_work import LeasedStage, StageFolder
from mallorn.workers.sandbox.untrusted_files import copy_out
from mallorn.workers.subprocesses.errors import retry_after_crash
from mallorn.workers.whole_model.compiled_model import CASE_FILE, IdleEngines, WholeModel
from mallorn.workers.whole_model.device_engine import DevicePool
from mallorn.workers.whole_model.engines import TUNED, Engines

KERNELS_SEC: Final = 1.5
LARGEST_RECORDS: Final = 1 << 30  # bytes of a file of records
LOST: Final = "the model as compiled on this worker does not contain these tasks"
TUNE_AGAIN: Final = "mallorn tune MODEL   (with one version of Mallorn on all workers)"
ELSEWHERE: Final = "the device has another host or architecture than this worker"
BENCH: Final = "mallorn bench MODEL --schedules DIR, on the device's host"


@dataclass(frozen=True, slots=True)
class TunedModel:
    """The job's model, compiled with one set of schedules."""

    winners: tuple[Winner, ...]
    directory: Path  # the tuning records that it was compiled with
    library: Path
    compiled: Compiled

    @property
    def is_large(self) -> bool:
        """Whether this host's memory is too small for several such models."""
        return is_large(self.compiled.bytes)


class TimedBuilds(NamedTuple):
    """Builds of the model, and the times of their kernels inside it."""

    builds: list[TunedModel]
    times: Sequence[Times]
    is_alone: bool  # whether no other work of the service ran meanwhile

    def sets_with_times(self) -> list[tuple[Winner, ...]]:
        """Return the builds' schedules with their times inside the model."""
        rows = zip(self.builds, self.times, strict=True)
        return [add_inside_times(build.winners, task_us, self.is_alone) for build, task_us in rows]


@dataclass(frozen=True, slots=True)
class JobModel:
    """The whole model of a job that this worker is finishing."""

    stage: LeasedStage
    whole_model: WholeModel
    libraries: KnownLibraries
    folder: StageFolder
    shares_locks: bool = True  # whether this host's devices use this worker's locks

    @classmethod
    def of(cls, stage: LeasedStage, graphs: ModelCompiler, folder: StageFolder, idle: IdleEngines) -> Self:
        """Return the job's model as it was imported, with its files in `folder`."""
        path, region, source = stage.copy_model_files(folder.path), stage.graph_report.region, None
        samples = stage.find_samples(path)
        if region is not None:
            source, path = path, folder.compiler_folder / REGION
            graphs.cut_region(str(source), stage.options.input_shapes, region, str(path))
        whole_model = WholeModel(
            path=path,
            source=source,
            source_shapes=stage.options.input_shapes,
            samples=samples,
            target=stage.target,
            recipe=stage.graph_report.recipe,
            input_shapes=largest_shapes(stage),
            input_ranges=stage.graph_report.input_ranges,
            graphs=graphs,
            folder=folder.compiler_folder,
            room=folder.path,
            threads=stage.target.num_cores,
            idle=idle,
        )
        return cls(stage, whole_model, KnownLibraries.of(stage), folder)

    def build(self, name: str, winners: Sequence[Winner]) -> TunedModel:
        """Write the schedules as tuning records, and compile the model with them."""
        return self.compile(self.write_tuning_records(name, winners), winners)

    def write_tuning_records(self, name: str, winners: Sequence[Winner]) -> Path:
        """Write the schedules as tuning records to a directory that no child process can
        change. Raises LeaseLost if another worker has the job, ExportFailed if a schedule
        does not rebuild, TamperedFile if the child process left anything but plain files."""
        self.stage.lease.raise_if_lost()
        child_directory, directory = self.whole_model.folder / name, self.folder.path / "exports" / name
        records = [Tuned(w.contest.program.tir, w.trace, w.record_times_sec) for w in winners]
        target, graphs = self.stage.target.text, self.whole_model.graphs
        if failures := graphs.write_database(str(child_directory), target, records):
            raise ExportFailed(f"{len(failures)} schedules do not rebuild: {failures[0].error}")
        directory.mkdir(parents=True, exist_ok=True)
        for file in DATABASE:
            copy_out(self.whole_model.folder, f"{name}/{file}", directory / file, LARGEST_RECORDS)
        return directory

    def compile(self, directory: Path, winners: Sequence[Winner]) -> TunedModel:
        """Compile the model with records, or take the library from the cache. With free
        dimensions, each tuned size runs its own kernels. Raises ExportFailed if a
        schedule matches no function of the model, so that TVM compiled naive loops."""
        library = directory.with_suffix(".so")
        if (description := self.libraries.copy_cached_library(winners, library)) is None:
            dynamic = self.stage.graph_report.dynamic
            model = replace(self.whole_model, dynamic=dispatch_to_next_size(dynamic) if dynamic else None)
            child_directory = self.whole_model.folder / directory.name
            library = child_directory.with_suffix(".so")
            description = model.compile(child_directory, library, self._manifest)
        if unmatched := {winner.contest.task.name for winner in winners} & set(description.missing):
            raise ExportFailed(f"{LOST}: {', '.join(sorted(unmatched))}", hint=TUNE_AGAIN)
        return TunedModel(tuple(winners), directory, library, description)

    def compile_with_rules(self, build: TunedModel, dynamic: Dynamic) -> TunedModel:
        """Compile a build of a model with free dimensions again, with the rules of
        `dynamic` on which tuned size computes inputs of which sizes."""
        library = self.whole_model.folder / f"{build.directory.name}-by-rules.so"
        child_directory = self.whole_model.folder / build.directory.name
        model = replace(self.whole_model, dynamic=dynamic)
        return replace(
            build, library=library, compiled=model.compile(child_directory, library, self._manifest)
        )

    @property
    def _manifest(self) -> Manifest:
        """Return what a library says of its job; the export's manifest is written later."""
        job, graph = self.stage.job, self.stage.graph_report
        return Manifest(
            job=job.id,
            model=job.model_id,
            target=self.stage.target.attrs,
            recipe=graph.recipe,
            input_shapes=self.stage.options.input_shapes,
            input_ranges=graph.input_ranges,
        )

    @contextmanager
    def lock_host_for_timing(self) -> Iterator[bool]:
        """Hold the host lock for a timing; yield False if other work of the service may run.

        The device is released first, since other workers may wait for it. If a device on
        another host times the model, it locks its own host, so nothing is locked here.
        """
        if self.whole_model.device_pool is not None:
            yield True
            return
        self.stage.runtime.release_device()
        with HostLock().hold_exclusive() as is_alone:
            yield is_alone and self.shares_locks

    def time_kernels(
        self,
        first: TunedModel,
        sets: Sequence[Sequence[Winner]],
        step_log: StepLog,
        seconds: float,
        programs: int = 0,
    ) -> TimedBuilds:
        """Build the model with each of `sets` (one schedule per task), and time the kernels
        of `first` and of these builds in turn, while `programs` load programs run."""
        word = "versions" if programs else "rivals"
        names = [first.directory.name, *(f"{word}-{n}" for n, _ in enumerate(sets, 1))]
        with Engines(self.whole_model, names) as engines:  # they start during the builds
            with step_log.time_step("build"):
                builds = [first, *map(self.build, names[1:], sets)]
            with step_log.time_step("time"):
                engines.load({build.directory.name: build.library for build in builds})
                with self.lock_host_for_timing() as is_alone, run_load_programs(programs):
                    times = list(engines.kernel_times(seconds).values())
        return TimedBuilds(builds, times, is_alone)

    def check_alone(self, library: Path) -> bool:
        """Run a CPU's library as a program with `mallorn_runtime` does, and compare its
        outputs with those of the tuned model's engine. Return True. Raises what
        `WholeModel.check_alone` and `place_or_fail` raise."""
        whole_model = place_or_fail(self).whole_model
        if whole_model.target.runs_on_cores and whole_model.device_pool is None:
            outputs = whole_model.outputs_file(TUNED)
            is_comparable = self.stage.graph_report.dynamic is None and outputs.exists()
            whole_model.check_alone(library, outputs if is_comparable else None)
        return True

    def judge_import(self, error: float, own_error: float | None) -> NodeDifference | None:
        """Do what `WholeModel.judge_import` does; the artifact store gets a wrong node and its inputs."""
        self.stage.set_step("the node is searched for where TVM's import and onnxruntime begin to differ")
        return retry_after_crash(partial(self.whole_model.judge_import, error, own_error, self._store_case))

    def _store_case(self, case: Path) -> str:
        copy = self.folder.path / CASE_FILE
        copy_out(case.parent, case.name, copy, LARGEST_RECORDS)
        case_url = f"{job_exports_uri(reserve_export_uri(self.stage))}/{CASE_FILE}"
        with open_artifact(case_url) as (store, path):
            store.makedirs(store._parent(path), exist_ok=True)
            store.put_file(str(copy), path)
        return case_url

    @contextmanager
    def engines_of(self, builds: Mapping[str, TunedModel]) -> Iterator[Engines]:
        """Yield engines that have loaded the builds and run each of them once."""
        with Engines(self.whole_model, builds) as engines:
            engines.load({name: build.library for name, build in builds.items()})
            yield engines

    def latencies(self, engines: Engines, programs: int = 0) -> dict[str, float]:
        """Return each engine's latency in microseconds, while `programs` load programs run."""
        with self.lock_host_for_timing(), run_load_programs(programs):
            return {name: latency.median for name, latency in engines.latencies().items()}


def place_on_device(model: JobModel) -> JobModel | None:
    """Return the model set up to run on this host if it has a device of the job and its
    architecture, else over RPC; None without a device. Raises Unavailable if the tracker
    does not answer."""
    runtime, target = model.stage.runtime, model.stage.target
    like = model.stage.device_class
    devices = of_class(runtime.fleet.devices(target), like)
    local_endpoints = [device.endpoint for device in devices if runs_here(device.endpoint)]
    if target.runs_on_cores and local_endpoints:
        return replace(model, shares_locks=all(map(shares_locks, local_endpoints)))
    if not devices:
        return None
    pool = DevicePool(runtime.runner, runtime.settings.tracker, target, like, model.folder.answers)
    return replace(model, whole_model=replace(model.whole_model, device_pool=pool))


def place_or_fail(model: JobModel) -> JobModel:
    """Return the model set up for timing. Raises MallornError if the job has no device."""
    placed_model = place_on_device(model)
    if placed_model is None:
        raise MallornError("no device for the target is online", hint="mallorn devices")
    return placed_model


def require_local_device(model: JobModel) -> bool:
    """Return True if a device of the job is on this host; otherwise raise MallornError."""
    if place_or_fail(model).whole_model.device_pool is not None:
        raise MallornError(ELSEWHERE, hint=BENCH)
    return True
