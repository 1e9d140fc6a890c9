"""The backend of `torch.compile(model, backend="mallorn")`.

Each graph that dynamo captures is exported to ONNX like the modules of `mallorn.tune`, so
that its workloads have the same keys. The service's known schedules are looked up, and the
graph is compiled with them at its first call. A graph that cannot be compiled runs eagerly.
"""

import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final, cast

import torch
from torch import Tensor, fx

from mallorn.core.check_option_kwargs import OptionKwargs, check_option_kwargs
from mallorn.core.errors import MallornError
from mallorn.core.settings import settings
from mallorn.core.states import ZERO_SHOT
from mallorn.core.targets import LOCAL
from mallorn.core.values.finish_report import Source
from mallorn.core.values.library_origin import origin_in_manifest
from mallorn.onnx_export import to_onnx
from mallorn.schedule_directory import copy_library, local_model, read_schedule_directory
from mallorn.torch_module import call_session, open_session
from mallorn.tune_model import tune

LIBRARY, FIGURES = "model.so", "figures.json"
MOST_KEPT: Final = 64  # libraries in the data directory; the ones unused for longest are deleted
MOST_VARIANTS: Final = 8  # libraries of one graph: for sets of weights, and for sizes of free dimensions
LARGEST_ERROR: Final = (
    1e-3  # relative to the largest value of an output; in another order sums differ by 1e-6
)
TUNE_OPTIONS: Final = frozenset({"trials", "minutes", "seed"})
Args = tuple[Any, ...]


class EagerFallback(RuntimeWarning):
    """A graph runs eagerly; the message says why."""


class CannotCompile(MallornError):
    """A graph does what a library cannot do."""


@dataclass(frozen=True)
class TorchGraph:
    """How a graph was compiled, or why it runs eagerly."""

    found: int = 0  # workloads whose schedule was measured for the same workload, or tuned now
    of: int = 0  # workloads of the graph
    kept: bool = False  # whether an earlier process left the library
    error: float = 0.0  # relative to the eager outputs of the first call
    reason: str = ""  # why the graph runs eagerly; empty if it was compiled


_reports: Final[list[TorchGraph]] = []
_reasons_told: Final[set[str]] = set()
_lock: Final = Lock()


def reports() -> Sequence[TorchGraph]:
    """Return a report of each library and each fallback of this process, oldest first."""
    return tuple(_reports)


def compile_graph(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Mapping[str, object] | None = None,
) -> Callable[..., Any]:
    """Return a function that runs a graph, for dynamo.

    `options` are those of `mallorn.tune`; with `trials` or `minutes` the graph is tuned,
    otherwise known schedules are looked up. Raises InvalidRequest for an unknown option.
    """
    given = dict(options or {})
    check_option_kwargs(cast(OptionKwargs, {name: given[name] for name in given.keys() - TUNE_OPTIONS}))
    if reason := _why_eager(example_inputs):
        return _fall_back(graph_module, reason)
    return CompiledGraph(graph_module, example_inputs, given)


def _why_eager(example_inputs: Sequence[Any]) -> str:
    """Return why no library can take these inputs; empty if one can."""
    tensors = [value for value in example_inputs if isinstance(value, Tensor)]
    if not tensors:
        return "the graph takes no tensor"
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "gradients are wanted: call the model inside `with torch.inference_mode():`"
    devices = sorted({tensor.device.type for tensor in tensors} - {"cpu"})
    if devices:
        return f"tensors are on {', '.join(devices)}; libraries are for this CPU"
    if any(tensor.layout != torch.strided or tensor.is_complex() for tensor in tensors):
        return "sparse and complex tensors cannot be passed to a library"
    return ""


def _fall_back(graph_module: fx.GraphModule, reason: str) -> Callable[..., Any]:
    """Return the graph as an eager function; warn once in a process for each reason."""
    _reports.append(TorchGraph(reason=reason))
    if reason not in _reasons_told:
        _reasons_told.add(reason)
        warnings.warn(f"mallorn: this graph runs eagerly: {reason}", EagerFallback, stacklevel=2)
    forward: Callable[..., Any] = graph_module.forward
    return forward


class CompiledGraph:
    """A graph that is compiled at its first call, and again for other weights or sizes."""

    def __init__(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], options: Mapping[str, object]
    ) -> None:
        self._graph_module = graph_module
        self._options = options
        self._placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self._weight_indices = [
            index
            for index, (node, value) in enumerate(zip(self._placeholders, example_inputs, strict=True))
            if isinstance(value, Tensor)
            and (
                isinstance(value, torch.nn.Parameter)
                or node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None
            )
        ]
        self._own_weights = [*graph_module.parameters(), *graph_module.buffers()]
        inputs = [index for index in range(len(example_inputs)) if index not in self._weight_indices]
        self._input_indices = [index for index in inputs if isinstance(example_inputs[index], Tensor)]
        # Dynamo passes the sizes of free dimensions as numbers; without such, shapes are fixed.
        self._number_indices = [index for index in inputs if index not in self._input_indices]
        self._variants: list[Variant] = []
        self._eager: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        for variant in self._variants:
            if variant.takes(args):
                return variant.run(args)
        if self._eager is not None:
            return self._eager(*args)
        with _lock:
            try:
                if len(self._variants) == MOST_VARIANTS:
                    raise CannotCompile(
                        f"it was compiled for {MOST_VARIANTS} sets of sizes and weights already"
                    )
                self._variants.append(variant := self._compile(args))
            except Exception as error:  # whatever an exporter or a compiler raises
                words = (
                    error.message if isinstance(error, MallornError) else f"{type(error).__name__}: {error}"
                )
                hint = f" ({error.hint})" if isinstance(error, MallornError) and error.hint else ""
                self._eager = _fall_back(self._graph_module, words.partition("\n")[0] + hint)
                return self._eager(*args)
        return variant.run(args)

    def _compile(self, args: Args) -> "Variant":
        """Return the graph, compiled for these weights and sizes. Raises CannotCompile, and
        whatever the export, the service and the compiler raise."""
        tensors = [args[index] for index in self._input_indices]
        program = self.export(args)
        with torch.no_grad():
            expected = self._graph_module(*args)
        results = [value for value in expected if isinstance(value, Tensor)]
        storages = {value.untyped_storage().data_ptr() for value in args if isinstance(value, Tensor)}
        if any(value.numel() and value.untyped_storage().data_ptr() in storages for value in results):
            raise CannotCompile("it returns a view of an input")
        folder = settings().data_dir.expanduser() / "torch" / self._content_key(program, tensors)
        kept = (folder / FIGURES).is_file() and (folder / LIBRARY).is_file()
        if not kept:
            _build(program, folder, self._options)
        found, of = json.loads((folder / FIGURES).read_text())
        (folder / FIGURES).touch()
        weights = [*((index, args[index]) for index in self._weight_indices)]
        numbers = tuple(args[index] for index in self._number_indices)
        shapes = [tensor.shape for tensor in tensors] if self._number_indices else []
        variant = Variant(
            session=open_session(folder / LIBRARY),
            weights=[(index, weight, _version(weight)) for index, weight in weights],
            own_weights=[(weight, _version(weight)) for weight in self._own_weights],
            numbers=[*zip(self._number_indices, numbers, strict=True)],
            shapes=[*zip(self._input_indices, shapes, strict=False)],
            inputs=self._input_indices,
            constants=[None if isinstance(value, Tensor) else (value,) for value in expected],
        )
        error = _compare(call_session(variant.session, tensors), results)
        _reports.append(TorchGraph(found=found, of=of, kept=kept, error=error))
        return variant

    def export(self, args: Args) -> Any:
        """Return the graph as torch.export's program, with these weights as constants.

        Raises CannotCompile if it changes its inputs.
        """
        with torch.no_grad():
            tensors = tuple(args[index] for index in self._input_indices)
            program = torch.export.export(self._freeze(args), tensors)
            # Only decompositions turn changes in place into outputs.
            signature = program.run_decompositions({}).graph_signature
        if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
            raise CannotCompile("it writes to its inputs or weights")
        return program

    def _freeze(self, args: Args) -> fx.GraphModule:
        """Return a copy of the graph that takes only input tensors: weights become buffers,
        sizes numbers."""
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        graph.output(graph.graph_copy(self._graph_module.graph, copies))
        module = fx.GraphModule(self._graph_module, graph)
        for index in self._weight_indices:
            node, name = copies[self._placeholders[index]], f"mallorn_weight_{index}"
            module.register_buffer(name, args[index].detach())
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(name))
            graph.erase_node(node)
        numbers = {copies[self._placeholders[index]]: args[index] for index in self._number_indices}
        for node in numbers:
            for user in list(node.users):
                user.args, user.kwargs = fx.node.map_arg(
                    (user.args, user.kwargs), lambda known: numbers.get(known, known)
                )
            graph.erase_node(node)
        module.recompile()
        return module.eval()

    def _content_key(self, program: Any, tensors: Sequence[Tensor]) -> str:
        """Return a hash of everything that determines the library: graph, weights, shapes,
        options, code and machine."""
        from mallorn.workers.device.detect_host import read_host_facts
        from mallorn.workers.tvm.code_digest import code_digest

        specs = [(str(tensor.dtype), tuple(tensor.shape)) for tensor in tensors]
        origin = code_digest(), read_host_facts()["host_class"], torch.__version__, settings().url
        digest = sha256(repr((specs, sorted(self._options.items()), origin)).encode())
        for name, part in program.graph_module.named_modules():
            digest.update(f"{name} {getattr(part, 'graph', part)!s}".encode())
        for name, value in (*program.state_dict.items(), *program.constants.items()):
            if isinstance(value, Tensor):
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(value.detach().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A graph's library, and the weights and sizes for which it is right.

    Members are pairs of an argument's index and its value, unless noted.
    """

    session: Any
    weights: Sequence[tuple[int, Tensor, int]]  # index, value, and the version that torch counts
    own_weights: Sequence[tuple[Tensor, int]]  # of the graph module itself, with versions
    numbers: Sequence[tuple[int, Any]]
    shapes: Sequence[tuple[int, Any]]
    inputs: Sequence[int]
    constants: Sequence[tuple[Any] | None]  # by output: a value that is no tensor

    def takes(self, args: Args) -> bool:
        """Return whether the library is compiled for these weights and sizes."""
        return (
            all(
                args[index] is weight and _version(weight) == version
                for index, weight, version in self.weights
            )
            and all(_version(weight) == version for weight, version in self.own_weights)
            and all(args[index] == number for index, number in self.numbers)
            and all(args[index].shape == shape for index, shape in self.shapes)
        )

    def run(self, args: Args) -> Args:
        """Call the library, and return what the graph returns."""
        outputs = iter(call_session(self.session, [args[index] for index in self.inputs]))
        return tuple(next(outputs) if constant is None else constant[0] for constant in self.constants)


def _version(tensor: Tensor) -> int:
    """Return the number of in-place changes; torch does not count those of inference tensors."""
    return 0 if tensor.is_inference() else int(tensor._version)


def _compare(outputs: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest relative error of a library. Raises CannotCompile if it is wrong."""
    if len(outputs) != len(expected):
        raise CannotCompile(f"the library has {len(outputs)} outputs, and the graph {len(expected)}")
    largest = 0.0
    for output, right in zip(outputs, expected, strict=True):
        if (output.shape, output.dtype) != (right.shape, right.dtype):
            raise CannotCompile(
                f"an output is {output.dtype} {tuple(output.shape)}, and in eager mode {right.dtype} "
                f"{tuple(right.shape)}"
            )
        if not right.numel():
            continue
        wide = right.double()
        error = float((output.double() - wide).abs().max() / wide.abs().max().clamp(min=1e-30))
        if not error <= LARGEST_ERROR:
            raise CannotCompile(f"the library computes something else: relative error {error:.0e}")
        largest = max(largest, error)
    return largest


def _build(program: Any, folder: Path, options: Mapping[str, object]) -> None:
    """Tune an exported program or look up its schedules; compile it into `folder`."""
    wanted: Any = {"library": False, **options}  # it is compiled here
    if not {"trials", "minutes", "mode"} & wanted.keys():
        wanted["mode"] = ZERO_SHOT
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".new-", dir=folder.parent) as parent:
        model, schedules = to_onnx(program, Path(parent, "graph.onnx")), Path(parent, "schedules")
        job = tune(model, _target(), out=schedules, progress=lambda _: None, **wanted)
        exported = read_schedule_directory(schedules, None)
        (ready := Path(parent, "ready")).mkdir()
        with local_model(model, exported) as whole_model:
            library = whole_model.folder / LIBRARY
            records, origin = exported.create_database_folder(whole_model.folder), exported.manifest
            compiled = whole_model.compile(records, library, origin_in_manifest(origin))
            copy_library(library, ready / LIBRARY)
        report = job.status.finish_report
        guesses = report.unmeasured_schedules.values() if report else ()
        found = compiled.found - sum(guess.source is not Source.SAME for guess in guesses)
        (ready / FIGURES).write_text(json.dumps([found, compiled.of]))
        shutil.rmtree(folder, ignore_errors=True)
        ready.rename(folder)
    kept = sorted(folder.parent.glob(f"*/{FIGURES}"), key=lambda path: -path.stat().st_mtime)
    for path in kept[MOST_KEPT:]:
        shutil.rmtree(path.parent, ignore_errors=True)


def _target() -> str:
    """Return the target of this machine, on which the library will run."""
    if settings().url is None:
        return LOCAL
    from mallorn.workers.device.detect_host import detect_target

    return detect_target().text
