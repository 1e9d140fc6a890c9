# mypy: disable-error-code="empty-body"
"""Child process that holds one inference engine with one model and times it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mallorn.workers.device.slice_timing_result import Slice
from mallorn.workers.interfaces.hardware_probes import Probe
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.typed_method import method

RUN_TIMEOUT_SEC: Final = 600.0


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """An inference engine with a loaded model: name, version and number of threads."""

    engine: str
    version: str
    threads: int
    own_error: float | None = None  # onnxruntime, quantised: error against unfused operators


class Engine(Child):
    """Child process with one model in one engine; npz files hold arrays in call order.

    The parent starts one process per engine, with TVM_NUM_THREADS set to the target's
    cores. While one runs, it suspends all others, because onnxruntime's spinning threads
    slow down other processes.
    """

    MODULE = "mallorn.workers.tvm.engine_child"

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def load_library(self, library: str, target: str, inputs_npz: str) -> LoadedEngine:
        """Load a compiled model and its inputs."""

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def load_onnxruntime(self, model_path: str, inputs_npz: str, threads: int) -> LoadedEngine:
        """Load a model in onnxruntime with `threads` threads, or with one per core if that
        is faster. Raises Unavailable if onnxruntime is not installed."""

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def time_bursts(self, bursts: int, number: int) -> list[float]:
        """Warm up, then return the median latency (us) of each burst of `number` calls."""

    @method(limit_sec=lambda arguments: RUN_TIMEOUT_SEC + float(arguments["seconds"]))
    def time_kernels(self, seconds: float) -> dict[str, float]:
        """Measure for `seconds`; return the microseconds per run that each kernel takes."""

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def save_outputs(self, outputs_npz: str) -> int:
        """Run the model once, write the outputs in order and return their number. For a
        quantised model in onnxruntime, the outputs are those of its unfused operators."""

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def run_alone(self, library: str, inputs_npz: str, outputs_npz: str) -> int:
        """Run a library once with TVM's runtime library only, as `mallorn_runtime` does, and
        save its outputs. The process must be new, because other methods load the rest of TVM."""

    @method(limit_sec=60.0)
    def time_probes(self, folder: str, probes: Sequence[Probe]) -> list[Slice]:
        """Run a library's probes on this host; return the shortest slice of each."""
