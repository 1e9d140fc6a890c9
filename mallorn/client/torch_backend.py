"""The backend of `torch.compile(model, backend="mallorn")`.

Each graph that dynamo captures is tuned as `mallorn.tune` tunes a module, so that its
workloads have the same keys; by default in a job of the mode `one-shot`, which looks up the
service's known schedules. Calls run the job's library. A graph without one runs eagerly.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final

import torch
from torch import Tensor, fx

from mallorn.client.job import Job
from mallorn.client.logins import current_url
from mallorn.client.torch_module import TunedModule
from mallorn.client.tune_model import tune
from mallorn.core.errors import InvalidModel
from mallorn.core.private_files import make_private_directory
from mallorn.core.settings import settings
from mallorn.core.targets import LOCAL
from mallorn.core.values.manifest import LIBRARY
from mallorn.core.version import VERSION
from mallorn.workers.device.detect_host import detect_target, read_host_facts
from mallorn.workers.sandbox.untrusted_files import TamperedFile, open_plain

MOST_FILES: Final = 64  # libraries in the data directory; the least recently used are deleted
MOST_LIBRARIES: Final = 8  # of one graph: for other weights, and for other sizes of free dimensions
LARGEST_ERROR: Final = 1e-3  # relative to an output's largest value; reordered sums differ by 1e-6
Args = Sequence[Any]

jobs: Final[list[Job]] = []  # of this process, oldest first; a library that was kept needs no job
_reasons: Final[set[str]] = set()  # that were given in warnings
_lock: Final = Lock()


class EagerFallback(RuntimeWarning):
    """A graph runs eagerly; the message says why."""


def compile_graph(
    graph: fx.GraphModule, example_inputs: Args, options: Mapping[str, object] | None = None
) -> Callable[..., Any]:
    """Return a function that runs a graph, for dynamo.

    `options` are those of `mallorn.tune`; with `trials` or `minutes` the graph is tuned.
    """
    tensors = [value for value in example_inputs if isinstance(value, Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _fall_back(graph, "gradients are wanted: call the model in `with torch.inference_mode():`")
    if any(tensor.device.type != "cpu" or tensor.layout != torch.strided for tensor in tensors):
        return _fall_back(graph, "it takes a tensor that is not on the CPU, or is sparse")
    return CompiledGraph(graph, example_inputs, options or {})


def _fall_back(graph: fx.GraphModule, reason: str) -> Callable[..., Any]:
    """Return the graph as an eager function; warn once in a process for each reason."""
    if reason not in _reasons:
        _reasons.add(reason)
        warnings.warn(f"mallorn: this graph runs eagerly: {reason}", EagerFallback, stacklevel=2)
    eager: Callable[..., Any] = graph.forward
    return eager


class FrozenGraph(torch.nn.Module):
    """A graph that takes only the tensors that are inputs; its other arguments are constants."""

    def __init__(self, graph: fx.GraphModule, args: Args, inputs: Sequence[int]) -> None:
        super().__init__()
        self.graph, self.args, self.inputs = graph, args, inputs
        for index, value in enumerate(args):
            if isinstance(value, Tensor) and index not in inputs:
                self.register_buffer(f"weight_{index}", value)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs that are tensors."""
        args = {index: getattr(self, f"weight_{index}", value) for index, value in enumerate(self.args)}
        args |= zip(self.inputs, tensors, strict=True)
        return tuple(value for value in self.graph(*args.values()) if isinstance(value, Tensor))

    def content_key(self, *origin: object) -> str:
        """Return a hash of the graph, its constants, the shapes of its inputs and `origin`."""
        digest = sha256(repr(origin).encode())
        for name, part in self.graph.named_modules():
            digest.update(f"{name} {getattr(part, 'code', part)}".encode())
        for index, value in enumerate((*self.args, *self.graph.parameters(), *self.graph.buffers())):
            is_tensor = isinstance(value, Tensor)
            digest.update(repr((value.dtype, value.shape) if is_tensor else value).encode())
            if is_tensor and index not in self.inputs:
                digest.update(value.detach().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()


class CompiledGraph:
    """A graph that is compiled at its first call, and again for other weights or sizes."""

    def __init__(self, graph: fx.GraphModule, example_inputs: Args, options: Mapping[str, object]) -> None:
        self._graph, self._options = graph, options
        self._eager: Callable[..., Any] | None = None
        # By sizes and weights: library, outputs (`Tensor` for tensors), and the weights, to keep their ids.
        self._libraries: dict[Args, tuple[TunedModule, Args, Args]] = {}
        # Dynamo passes weights as arguments, too, and sizes of free dimensions as numbers.
        nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._weights, self._inputs = list[int](), list[int]()
        for index, (node, value) in enumerate(zip(nodes, example_inputs, strict=True)):
            is_static = "_dynamo_static_input_type" in node.meta.get("tensor_dict", ())
            if is_static or isinstance(value, torch.nn.Parameter):
                self._weights.append(index)
            elif isinstance(value, Tensor):
                self._inputs.append(index)

    def __call__(self, *args: Any) -> Any:
        sizes = (arg.shape if isinstance(arg, Tensor) else arg for arg in args)
        weights = [args[index] for index in self._weights]
        # Torch counts changes in place, but not those of inference tensors.
        key = (*sizes, *((id(weight), weight.is_inference() or weight._version) for weight in weights))
        if key not in self._libraries:
            if self._eager is not None:
                return self._eager(*args)
            try:
                with _lock, torch.inference_mode(False), torch.no_grad():
                    self._libraries[key] = self._compile(args)
            except Exception as error:  # whatever an exporter or a compiler raises
                lines = f"{type(error).__name__}: {error}".splitlines()
                self._eager = _fall_back(self._graph, "; ".join(lines[:2]))
                return self._eager(*args)
        library, constants, _ = self._libraries[key]
        outputs = iter(library.run(*(args[index] for index in self._inputs)))
        return tuple(next(outputs) if constant is Tensor else constant for constant in constants)

    def freeze(self, args: Args) -> tuple[FrozenGraph, Args]:
        """Return the graph with these weights and sizes as constants, and its outputs.

        Raises InvalidModel if it changes its arguments or returns views of them.
        """
        copies = [arg.detach().clone() if isinstance(arg, Tensor) else arg for arg in args]
        outputs = self._graph(*copies)
        tensors, results = ([v for v in values if isinstance(v, Tensor)] for values in (copies, outputs))
        if any(tensor._version for tensor in tensors):
            raise InvalidModel("it writes to its inputs or weights")
        storages = {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}
        if any(result.untyped_storage().data_ptr() in storages for result in results):
            raise InvalidModel("it returns a view of an input")
        return FrozenGraph(self._graph, copies, self._inputs), outputs

    def _compile(self, args: Args) -> tuple[TunedModule, Args, Args]:
        """Return a value of `_libraries`. Raises InvalidModel if the graph cannot be
        compiled, and whatever the export, the service and the runtime raise."""
        if len(self._libraries) == MOST_LIBRARIES:
            raise InvalidModel(f"it was compiled {MOST_LIBRARIES} times, for other sizes or weights")
        frozen, outputs = self.freeze(args)
        inputs = tuple(frozen.args[index] for index in self._inputs)
        folder, url = settings().data_dir.expanduser() / "torch", settings().url or current_url()
        origin = VERSION, torch.__version__, read_host_facts()["host_class"], url
        file = folder / f"{frozen.content_key(*origin, *sorted(self._options.items()))}.so"
        if not is_kept(file):
            build_library(frozen, inputs, file, self._options)
        file.touch()
        for old in sorted(folder.glob("*.so"), key=lambda path: -path.stat().st_mtime)[MOST_FILES:]:
            old.unlink(missing_ok=True)
        library = TunedModule(file)
        results = [value for value in outputs if isinstance(value, Tensor)]
        for output, value in zip(library.run(*inputs), results, strict=True):
            limit = LARGEST_ERROR * float(value.double().abs().max()) if value.numel() else 0.0
            torch.testing.assert_close(output, value, rtol=0, atol=limit, msg="the library is wrong")
        constants = [Tensor if isinstance(value, Tensor) else value for value in outputs]
        return library, constants, [args[index] for index in self._weights]


def is_kept(file: Path) -> bool:
    """Return whether this user kept a library; another user's could be any code."""
    try:
        open_plain(file.parent, file.name, sys.maxsize).close()
    except (TamperedFile, FileNotFoundError):  # the folder may be missing
        return False
    return True


def build_library(frozen: FrozenGraph, inputs: Args, file: Path, options: Mapping[str, object]) -> None:
    """Tune a graph or look up its schedules, and write its library to `file`."""
    job_options: Any = dict(options)
    if not {"trials", "minutes"} & options.keys():
        job_options.setdefault("mode", "one-shot")
    # A service elsewhere must compile for this machine, not for one of its own.
    target = detect_target().text if settings().url or current_url() else LOCAL
    make_private_directory(file.parent)
    with TemporaryDirectory(prefix=".new-", dir=file.parent) as folder:
        directory = Path(folder, "tuned")
        job_options |= {"out": directory, "example_inputs": inputs, "progress": lambda _: None}
        jobs.append(job := tune(frozen, target, **job_options))
        if not (directory / LIBRARY).is_file():
            raise InvalidModel(job.status.finish_report.no_library_reason)
        (directory / LIBRARY).replace(file)
