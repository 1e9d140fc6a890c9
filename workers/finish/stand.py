"""A test stand for the whole model: compiled with one set of schedules after another, and timed as it is."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mallorn.core.hosts import host_id
from workers.faces.engine import Engine
from workers.faces.graphs import Graphs, Untuned
from workers.finish.export import write_records
from workers.finish.winners import Winner
from workers.host.alone import Host
from workers.racing.engines import race, race_kernels
from workers.slot.stage import Stage

SEED: Final = 0
KERNELS_SEC: Final = 1.5


@dataclass(frozen=True, slots=True)
class Built:
    """The model with one set of schedules."""

    winners: tuple[Winner, ...]
    directory: Path  # the tuning records that it was compiled with
    library: Path
    found: dict[str, Any]  # how many of its workloads have one
    seconds: float


@dataclass(frozen=True, slots=True)
class Stand:
    """Compiles in `graphs` and times in processes of its own, on this host."""

    claimed: Stage
    graphs: Graphs
    model: Path
    folder: Path

    @property
    def inputs(self) -> Path:
        """Random inputs of the model, made by `prepare`."""
        return self.folder / "inputs.npz"

    def prepare(self) -> list[str]:
        """Make the inputs that every engine is run with; their names."""
        shapes, ranges = self.claimed.options.input_shapes, self.claimed.graph.input_ranges
        return self.graphs.make_inputs(str(self.model), str(self.inputs), SEED, shapes, ranges)

    def build(self, name: str, winners: Sequence[Winner]) -> Built:
        """Write the schedules as tuning records, and compile the model with them."""
        return self.compile(self.write(name, winners), winners)

    def write(self, name: str, winners: Sequence[Winner]) -> Path:
        """The directory of the schedules as tuning records. Raises ExportFailed."""
        self.claimed.lease.check()
        directory = self.folder / name
        write_records(self.claimed, winners, self.graphs, directory)
        return directory

    def compile(self, directory: Path, winners: Sequence[Winner]) -> Built:
        """The model with the schedules of a directory that `write` filled."""
        library = directory.with_suffix(".so")
        with Host().shared():
            compiled = self.graphs.compile_model(
                model_path=str(self.model),
                schedules_dir=str(directory),
                target=self.claimed.target.text,
                recipe=self.claimed.graph.recipe,
                out_so=str(library),
                input_shapes=self.claimed.options.input_shapes,
            )
        found = {"found": compiled.found, "of": compiled.of, "missing": compiled.missing}
        return Built(tuple(winners), directory, library, found, compiled.seconds)

    def compile_untuned(self, library: Path) -> Untuned:
        """The model as TVM compiles it by itself."""
        target, shapes = self.claimed.target.text, self.claimed.options.input_shapes
        with Host().shared():
            return self.graphs.compile_default(str(self.model), target, str(library), shapes)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """This host for a timing. The device is given back first: others may wait for it with a share."""
        self.claimed.runtime.release_device()
        with Host().alone() as held:
            yield held

    def kernels(self, builds: Sequence[Built]) -> list[dict[str, float]]:
        """What each build spends in each kernel, in microseconds a run."""
        with self._engines({str(build.library): build for build in builds}) as engines, self.alone():
            return race_kernels(list(engines.values()), KERNELS_SEC)

    def latencies(self, builds: Mapping[str, Built]) -> dict[str, float]:
        """The whole model's latency in microseconds with each build."""
        with self._engines(builds) as engines, self.alone():
            return {name: timing["median"] for name, timing in race(engines).items()}

    @contextmanager
    def _engines(self, builds: Mapping[str, Built]) -> Iterator[dict[str, Engine]]:
        with ExitStack() as stack:
            yield {name: stack.enter_context(self._engine(build)) for name, build in builds.items()}

    @contextmanager
    def _engine(self, build: Built) -> Iterator[Engine]:
        target = self.claimed.target
        env = {"TVM_NUM_THREADS": str(target.num_cores)}
        with Engine(env=env, name="engine on the stand") as engine:
            engine.load_library(str(build.library), target.text, str(self.inputs))
            yield engine


def device_is_here(claimed: Stage) -> bool:
    """Whether what this host times is what the job's device would."""
    devices = claimed.runtime.fleet.devices(claimed.target)
    return claimed.target.is_cpu and any(device.endpoint.host_id == host_id() for device in devices)
