"""Checks before and after a compilation, each with a clear error. Does not import TVM."""

import argparse
import importlib.metadata
import importlib.util
import json
import math
import mmap
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from mallorn.graphc.core.pass_registry import Step
from mallorn.graphc.onnx import protobuf_fields

# Other versions of these packages may crash or find no schedule.
EXACT = ("apache-tvm", "apache-tvm-ffi")
NEEDED = ("target", "recipe")
OPTIONAL = ("mallorn", "onnxruntime")
COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")  # compilers that TVM looks for
# Precisions as job options name them, and those of the passes that round factors, by pass and data type.
FLOAT32, FP16, BF16, TF32 = "float32", "fp16", "bf16", "tf32"
_ROUNDING = {
    ("bf16_dot_products", ""): BF16,
    ("fp16_dot_products", ""): FP16,
    ("half_products", "bfloat16"): BF16,
    ("half_products", "float16"): FP16,
    ("tf32_products", ""): TF32,
}
# A wrong schedule causes far larger errors. Rounding of factors to 8 or 11 bits stays below these limits.
LARGEST_ERROR = 1e-3
LARGEST_ERROR_ROUNDED = {BF16: 5e-2, FP16: 5e-2 / 8, TF32: 5e-2 / 8}
# In a quantised model, numbers near the border between two steps are rounded either way. So
# the error may be twice that of onnxruntime's fused operators, plus one step.
LARGEST_SHARE_INT8 = 2.0
STEP_INT8 = 1 / 64  # for results that span at least half of their range
LARGEST_ERROR_INT8 = 0.15  # limit if onnxruntime is not available
# Products with weights of few bits read 13- to 15-bit inputs here; onnxruntime may use 8 bits.
LARGEST_ERROR_NARROW = 5e-2
# Some units in the last place of 16-bit results, by ONNX's type number: float16 and bfloat16.
LARGEST_ERROR_HALF = {10: 4e-3, 16: 3e-2}
# Field numbers in onnx.proto: a graph's outputs, a result's tensor type, its element type.
_OUTPUTS, _TENSOR, _ELEMENTS = 12, (2, 1), 1
_GRAPH_NODES, _FUNCTION_NODES = (protobuf_fields.GRAPH, 1), (25, 7)  # paths from the model
_OPERATOR, _ATTRIBUTE, _BRANCH_NODES = 4, 5, (5, 6, 1)  # paths from a node
_NAME, _INTEGER = 1, 3  # of an attribute
_NARROW = (b"NBits", b"BlockQuantized", b"DequantizeLinear")
# Operators of 8-bit weights whose inputs onnxruntime rounds to 8 bits, and we to 16 bits or not at all.
ROUNDING = frozenset((b"DynamicQuantizeLSTM",))
_QUANTISED = (b"QuantizeL", b"QLinear", b"QGemm", b"QAttention", b"MatMulInteger", b"ConvInteger")
Spec = Mapping[str, Any]  # of an input: name, dtype and shape


class ManifestFile(TypedDict, total=False):
    """The fields of a manifest that these checks read."""

    versions: dict[str, str]
    inputs: list[Spec]
    recipe: dict[str, list[Step]]
    without_schedule: list[str]


class Refused(Exception):
    """Raised if the compilation cannot continue, with a hint on what to type."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}\n  {hint}")


def read_manifest(directory: Path) -> Any:
    """Read the schedules' manifest.json. Raises Refused if it is missing or damaged."""
    try:
        manifest = json.loads((directory / "manifest.json").read_text())
        return {
            "input_shapes": {},
            "region": None,
            "input_ranges": {},
            "dynamic": None,
            **manifest,
            **{n: manifest[n] for n in NEEDED},
        }
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise Refused(
            f"{directory / 'manifest.json'} cannot be used: {error!r}", "copy the whole directory again"
        ) from None


def check_before_loading_tvm(manifest: ManifestFile, args: argparse.Namespace) -> None:
    """Check files, versions and compiler, or raise Refused; add Python's folder to PATH."""
    if not Path(args.model).is_file():
        raise Refused(f"there is no file {args.model}", "give the path of the ONNX file that was tuned")
    if args.output and not Path(args.output).absolute().parent.is_dir():
        folder = Path(args.output).parent
        raise Refused(f"there is no directory {folder}", f"mkdir -p {shlex.quote(str(folder))}")
    versions = manifest.get("versions", {})
    problems = []
    for name, version in versions.items():
        if name in OPTIONAL or args.any_version:
            continue
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            problems.append(f"{name} is not installed")
            continue
        if name in EXACT and installed != version:
            problems.append(
                f"{name} {installed} is installed and {version} is needed: "
                "other versions crash or find no schedule"
            )
    if problems:
        requirements = Path(sys.argv[0]).with_name("requirements.txt")
        install = f"tvm-venv/bin/pip install -r {shlex.quote(str(requirements))}"
        command = shlex.join(["tvm-venv/bin/python", *sys.argv])
        raise Refused("; ".join(problems), f"python -m venv tvm-venv && {install}\n  {command}")
    if args.check and is_relax_file(Path(args.model)):
        raise Refused("onnxruntime, which --check needs, cannot load a module of TVM", "leave out --check")
    if args.check and importlib.util.find_spec("onnxruntime") is None:
        raise Refused("--check needs onnxruntime", f"{sys.executable} -m pip install onnxruntime")
    # TVM needs a compiler for linking; one next to this Python will do.
    folders = os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join(folders)
    compiler = os.environ.get("CXX") or os.environ.get("CC")
    if compiler and shutil.which(compiler) is None:
        raise Refused(f"there is no compiler {compiler}, which CXX or CC names", "unset CXX CC")
    if not compiler and not any(map(shutil.which, COMPILERS)):
        raise Refused(
            f"no C compiler was found to link with: none of {', '.join(COMPILERS)} is on PATH",
            "sudo apt-get install -y g++   (or name one: CXX=/path/to/compiler)",
        )


def check_inputs(manifest: ManifestFile, inputs: Sequence[Spec], model: str) -> None:
    """Raise Refused if the model's input shapes or types differ from the tuned model's."""
    tuned_inputs = manifest.get("inputs")
    if tuned_inputs and [_dtype_and_shape(spec) for spec in tuned_inputs] != [
        _dtype_and_shape(spec) for spec in inputs
    ]:
        raise Refused(
            f"{model} takes {_describe(inputs)}; "
            f"the schedules are for a model that takes {_describe(tuned_inputs)}",
            "give the model that was tuned",
        )


def _dtype_and_shape(spec: Spec) -> tuple[Any, ...]:
    return spec["dtype"], tuple(spec["shape"])


def _describe(specs: Sequence[Spec]) -> str:
    return ", ".join(f"{spec['name']} {spec['dtype']}{spec['shape']}" for spec in specs) or "no inputs"


def check_schedules(
    manifest: ManifestFile, scheduled: list[str], unscheduled: list[str], args: argparse.Namespace
) -> None:
    """Raise Refused if tasks unexpectedly lack a schedule: TVM would compile slow loops."""
    unexpected = [name for name in unscheduled if name not in manifest.get("without_schedule", [])]
    count, names = len(scheduled) + len(unscheduled), ", ".join(unscheduled)
    text = f"{len(unscheduled)} of {count} workloads have no schedule: {names}"
    if not unexpected or (scheduled and args.allow_missing):
        sys.stderr.write(f"warning: {text}\n" if unscheduled else "")
    elif scheduled:
        raise Refused(
            text, "give the model that was tuned; with --allow-missing these workloads become slow loops"
        )
    else:
        raise Refused(
            f"none of the {len(unscheduled)} workloads of {args.model} has a schedule in this directory: "
            f"the model is not the one that was tuned. Workloads: {names}",
            "give the model that was tuned, or tune this one",
        )


def largest_allowed_error(model: Path, own_error: float | None = None) -> float:
    """Return the error to allow for quantised operators or 16-bit numbers, else 0.

    `own_error` is the error of onnxruntime's fused operators, known for quantised models.
    """
    with _mapped(model) as view:
        operators = _operator_names(view)
        if _has_any(operators, _QUANTISED):
            return LARGEST_ERROR_INT8 if own_error is None else LARGEST_SHARE_INT8 * own_error + STEP_INT8
        if _has_any(operators, _NARROW):
            return LARGEST_ERROR_NARROW
        try:  # 16-bit results, also of casts on the way
            of_outputs = protobuf_fields.GRAPH, _OUTPUTS, *_TENSOR
            outputs = protobuf_fields.nested_fields(view, *of_outputs)
            kinds = [protobuf_fields.number_of(view, *place, _ELEMENTS) for place in outputs]
            for place in _fields_of_nodes(view, _ATTRIBUTE):
                names = protobuf_fields.nested_fields(view, _NAME, within=place)
                if any(bytes(view[start:end]) == b"to" for start, end in names):
                    kinds.append(protobuf_fields.number_of(view, *place, _INTEGER))
        except protobuf_fields.NoMessage:
            return 0.0
        return max((LARGEST_ERROR_HALF.get(kind or 0, 0.0) for kind in kinds), default=0.0)


def is_relax_file(model: Path) -> bool:
    """Return whether an ONNX file contains a module of TVM, which onnxruntime cannot load."""
    with _mapped(model) as view:
        return _has_any(_operator_names(view), (b"RelaxModule",))


def is_quantised(model: Path) -> bool:
    """Return whether an ONNX file contains quantised operators."""
    with _mapped(model) as view:
        return _has_any(_operator_names(view), _QUANTISED)


def rounds_its_inputs(model: Path) -> bool:
    """Return whether an ONNX file contains operators that quantise their inputs when they run."""
    with _mapped(model) as view:
        return bool(_operator_names(view) & ROUNDING)


@contextmanager
def _mapped(model: Path) -> Iterator[memoryview]:
    if not model.is_file() or not model.stat().st_size:
        yield memoryview(b"")
        return
    with (
        model.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        yield view


def _has_any(operators: Set[bytes], words: Sequence[bytes]) -> bool:
    return any(word in name for name in operators for word in words)


def _operator_names(view: memoryview) -> set[bytes]:
    """Return the operators of nodes, branches and functions; empty for an invalid file."""
    try:
        return {bytes(view[start:end]) for start, end in _fields_of_nodes(view, _OPERATOR)}
    except protobuf_fields.NoMessage:
        return set()


def _fields_of_nodes(view: memoryview, field: int) -> Iterator[tuple[int, int]]:
    """Yield where nodes have a field, also in branches and functions. Raises NoMessage."""
    nodes: tuple[int, ...]
    for nodes in (_GRAPH_NODES, _FUNCTION_NODES):
        while any(protobuf_fields.nested_fields(view, *nodes)):
            yield from protobuf_fields.nested_fields(view, *nodes, field)
            nodes = *nodes, *_BRANCH_NODES


def check_error(manifest: ManifestFile, error: float, model: str, own_error: float | None) -> None:
    """Raise Refused if the error exceeds what the model's operators and recipe allow."""
    precision = precision_of_steps(manifest["recipe"]["before"])
    of_operators = largest_allowed_error(Path(model), own_error)
    limit = max(LARGEST_ERROR_ROUNDED.get(precision, LARGEST_ERROR), of_operators)
    if not error <= limit:
        raise Refused(
            f"the relative error against onnxruntime is {error:.1e}, more than {limit:.0e}",
            f"do not use this library{overflow_note(precision, error)}",
        )


def precision_of_steps(steps: Iterable[Step]) -> str:
    for step in steps:
        name, args = step["pass"], step.get("args")
        precision = _ROUNDING.get((name, str(args[0]) if args else ""))
        if precision is not None:
            return precision
    return FLOAT32


def overflow_note(precision: str, error: float) -> str:
    """Return how a model in float16 may have got such an error; empty for other precisions."""
    if precision != FP16:
        return ""
    verb = "became" if math.isinf(error) else "become"
    return f"; in float16, numbers over 65,504 {verb} infinite: tune with --precision bf16 or float32"
