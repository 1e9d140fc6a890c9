# mypy: disable-error-code="empty-body"
"""The process that holds one engine with one whole model, and times it or probes of its host when told to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from workers.device.slice_timing_result import Slice
from workers.interfaces.hardware_probes import Probe
from workers.subprocesses.child_process import Child
from workers.subprocesses.typed_method import method

RUN_TIMEOUT_SEC: Final = 600.0


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """What holds a model."""

    engine: str
    version: str
    threads: int
    own_error: float | None = None  # onnxruntime's in a quantised file, beside its operators one by one


class Engine(Child):
    """One model in one engine. Inputs and outputs are npz files, an array each in calling order.

    A parent starts a process an engine, with TVM_NUM_THREADS set to the target's cores, and lets each run in
    turn while the others are suspended: onnxruntime's threads spin, and slow down what runs beside them.
    """

    MODULE = "workers.tvm.engine_child"

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def load_library(self, library: str, target: str, inputs_npz: str) -> LoadedEngine:
        """Hold a compiled model with its inputs."""

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def load_onnxruntime(self, model_path: str, inputs_npz: str, threads: int) -> LoadedEngine:
        """Hold a model in onnxruntime. Raises Unavailable where that is not installed."""

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def time_bursts(self, bursts: int, number: int) -> list[float]:
        """The median latency in microseconds of each burst of `number` calls, after a warm-up."""

    @method(limit_sec=lambda given: RUN_TIMEOUT_SEC + float(given["seconds"]))
    def time_kernels(self, seconds: float) -> dict[str, float]:
        """Microseconds that a run of the held library spends in each of its kernels; takes `seconds`."""

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def save_outputs(self, outputs_npz: str) -> int:
        """Run once and write the outputs in order; how many there are.

        Of a quantised file in onnxruntime they are what its operators give one by one.
        """

    @method(limit_sec=60.0)
    def clock(self, folder: str, probes: Sequence[Probe]) -> list[Slice]:
        """The shortest run of each probe of one library in `folder`, on this host's own cores."""
