"""A test stand for the whole model: compiled with one set of schedules after another, and timed as it is."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mallorn.core.hosts import host_id
from workers.children.child import Child
from workers.faces.engine import Engine
from workers.finish.export import write_records
from workers.finish.winners import Winner
from workers.host.alone import Host
from workers.racing.engines import race, race_kernels
from workers.slot.stage import Stage

COMPILE_TIMEOUT_SEC: Final = 1800.0
LOAD_TIMEOUT_SEC: Final = 600.0
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
    graphs: Child
    model: Path
    folder: Path

    @property
    def inputs(self) -> Path:
        """Random inputs of the model, made by `prepare`."""
        return self.folder / "inputs.npz"

    def prepare(self) -> list[str]:
        """Make the inputs that every engine is run with; their names."""
        names: list[str] = self.graphs.call(
            "make_inputs",
            LOAD_TIMEOUT_SEC,
            model_path=str(self.model),
            inputs_npz=str(self.inputs),
            seed=0,
            input_shapes=self.claimed.options.input_shapes,
            input_ranges=self.claimed.graph.input_ranges,
        )
        return names

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
        recipe = self.claimed.graph.recipe.stored()
        found = self._compile("compile_model", library, schedules_dir=str(directory), recipe=recipe)
        told = {key: found[key] for key in ("found", "of", "missing")}
        return Built(tuple(winners), directory, library, told, found["seconds"])

    def compile_untuned(self, library: Path) -> dict[str, Any]:
        """The model as TVM compiles it by itself."""
        return self._compile("compile_default", library)

    def _compile(self, method: str, library: Path, **params: Any) -> dict[str, Any]:
        with Host().shared():
            found: dict[str, Any] = self.graphs.call(
                method,
                COMPILE_TIMEOUT_SEC,
                model_path=str(self.model),
                target=self.claimed.target.text,
                input_shapes=self.claimed.options.input_shapes,
                out_so=str(library),
                **params,
            )
        return found

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
