# mypy: disable-error-code="empty-body"
"""Child process that holds one inference engine with one model and times it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mallorn.core.errors import MallornError
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


class WrongImport(MallornError):
    """TVM's import of a model computes something else than onnxruntime."""


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A node of a model that TVM's import computes differently from onnxruntime, given the same
    inputs. Errors are relative; those against the node in float64 are None if that is unknown."""

    node: str  # empty: no node differs by itself
    operator: str
    error: float  # of ours against onnxruntime
    limit: float  # largest accepted error
    float64_error: float | None = None  # of ours
    onnxruntime_float64_error: float | None = None
    own_change: float | None = None  # of onnxruntime's outputs by rounding

    @property
    def is_import_wrong(self) -> bool:
        """Return whether neither float64 confirms our numbers nor the model magnifies rounding so."""
        if self.own_change is not None:
            return False
        if self.float64_error is None or self.onnxruntime_float64_error is None:
            return True
        return not self.float64_error <= max(self.limit, self.onnxruntime_float64_error)

    @property
    def description(self) -> str:
        """Say in a sentence what differs, or that onnxruntime is off."""
        if self.own_change is not None:
            return (
                "the model magnifies rounding: with inputs and weights changed in their last place, or in "
                f"float64, onnxruntime's own outputs change by {self.own_change:.1e} (relative), and ours "
                f"differ by {self.error:.1e}"
            )
        node = f"node {self.node!r} ({self.operator})" if self.node else "the graph (its simplification)"
        if self.is_import_wrong:
            return (
                f"the import of {node} computes something else than onnxruntime: "
                f"relative error {self.error:.1e}"
            )
        return (
            f"onnxruntime rounds {node} more than the tuned model: relative errors against float64 are "
            f"{self.onnxruntime_float64_error:.1e} and {self.float64_error:.1e}"
        )


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
    def load_onnxruntime(
        self, model_path: str, inputs_npz: str, threads: int, other_inputs: Sequence[str] = ()
    ) -> LoadedEngine:
        """Load a model in onnxruntime with `threads` threads, or with one per core if that
        is faster. `other_inputs` are further draws, on which a quantised model's own error
        is measured, too. Raises Unavailable if onnxruntime is not installed."""

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def time_bursts(self, bursts: int, number: int) -> list[float]:
        """Warm up, then return the median latency (us) of each burst of `number` calls."""

    @method(limit_sec=lambda arguments: RUN_TIMEOUT_SEC + float(arguments["seconds"]))
    def time_kernels(self, seconds: float) -> dict[str, float]:
        """Measure for `seconds`; return the microseconds per run that each kernel takes."""

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def save_outputs(self, outputs_npz: str, other_inputs: Sequence[str] = ()) -> int:
        """Run the model with its inputs and then with each of the files `other_inputs`;
        write all outputs in order and return their number per run. For a quantised model in
        onnxruntime, the outputs are those of its unfused operators."""

    @method(limit_sec=RUN_TIMEOUT_SEC)
    def run_alone(self, library: str, inputs: Sequence[str], outputs_npz: str) -> int:
        """Run a library on each file of inputs with TVM's runtime library only, as `mallorn_runtime`
        does, and save the outputs. The process must be new: other methods load the rest of TVM."""

    @method(limit_sec=3600.0)
    def bisect_import(
        self,
        model_path: str,
        target: str,
        inputs: Sequence[str],
        input_shapes: dict[str, list[int]],
        limit: float,
        case_npz: str,
        error: float,
    ) -> NodeDifference | None:
        """Return the first node whose import, compiled by itself, differs from onnxruntime by
        more than `limit`; the file `case_npz` keeps it and its inputs. If there is none, return
        how the model magnifies rounding, or None if that does not explain the whole model's `error`."""

    @method(limit_sec=60.0)
    def time_probes(self, folder: str, probes: Sequence[Probe]) -> list[Slice]:
        """Run a library's probes on this host; return the shortest slice of each."""
