"""Parse and check ONNX files before TVM imports them."""

import re
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any, Final

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from mallorn.core.detect_non_onnx_format import SAMPLE_BYTES, foreign_format
from mallorn.core.errors import InvalidModel
from mallorn.core.storable_json import quote_untrusted
from mallorn.graphc.onnx import inline_functions, lower_contrib_operators, relax_modules, unroll_loops
from mallorn.graphc.onnx import read_with_weights_on_disk as weights
from mallorn.graphc.onnx.normalize_model import Cycle
from mallorn.workers.tvm.programs.allowed_programs import check_network

CHECK: Final = "check-model MODEL   (it comes with the package onnx)"
TOGETHER: Final = "mallorn tune MODEL   (or submit: both send what lies in files beside the model)"
TOLD: Final = 400  # longest quotation of an error, in characters
MOST_NAMES: Final = 10  # operators named in a message
LIST: Final = "(what is imported: docs/models.md)"
DOMAINS: Final = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
OLDER: Final = "export the model with an older opset, e.g. torch.onnx.export(..., opset_version=17)"


def read_model(path: str | Path) -> ModelProto:
    """Read an ONNX file, and check that it is valid and has all its weights. Large weights
    stay on disk. Raises InvalidModel."""
    file = Path(path)
    if not file.stat().st_size:
        raise InvalidModel("the model file is empty", hint="export the model again; zero bytes were received")
    try:
        model = weights.read(file)
        if not model.graph.node or not model.ir_version:
            raise _unreadable(file)
        if (text := relax_modules.module_text(model)) is None:
            _check(model)
        else:
            check_network(text)
            try:
                relax_modules.declare_inputs_and_outputs(model)
            except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                message = f"the module of TVM has no main that takes and returns tensors: {error}"
                raise InvalidModel(message) from None
    except (DecodeError, TypeError, UnicodeDecodeError):  # invalid names are read as bytes
        raise _unreadable(file) from None
    except weights.Missing as error:
        raise InvalidModel(str(error), hint=TOGETHER) from None
    except Cycle as error:
        raise InvalidModel(f"not a valid ONNX model: {error}", hint=CHECK) from None
    return model


def graph_inputs(graph: GraphProto) -> list[Any]:
    """Return a graph's inputs except weights, which old exporters list as inputs, too."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def _check(model: ModelProto) -> None:
    function_names = {(function.domain, function.name) for function in model.functions}
    newest_opset = onnx.defs.onnx_opset_version()
    unknown = set()
    for node in _nodes(model):
        if node.domain in inline_functions.DOMAINS:
            is_known = onnx.defs.has(node.op_type, newest_opset)  # also if a later opset dropped it
        else:
            is_known = node.domain in DOMAINS  # onnxruntime may have added it
        if not is_known and node.op_type not in lower_contrib_operators.HOMELESS:
            unknown.add((node.domain, node.op_type))
    unknown -= function_names
    if unknown:
        raise _unknown(sorted(f"{domain}.{name}" if domain else name for domain, name in unknown))
    versions = {
        "IR version": (model.ir_version, onnx.IR_VERSION),
        "opset": (inline_functions.opset_of(model), newest_opset),
    }
    for kind, (version, newest) in versions.items():
        if version > newest:
            raise InvalidModel(
                f"the model has ONNX {kind} {version}; {newest} is the newest known", hint=OLDER
            )
    if not model.graph.output:
        raise InvalidModel("the model has no outputs", hint="export the model with its results as outputs")
    try:
        onnx.checker.check_model(_copy_for_checker(model))
    except onnx.checker.ValidationError as error:
        reason = " ".join(str(error).partition("==> Context")[0].split())
        raise InvalidModel(f"not a valid ONNX model: {reason[:TOLD]}", hint=CHECK) from None


def refuse_string_inputs(graph: GraphProto) -> None:
    """Raise InvalidModel if an input is a tensor of strings."""
    for value in graph_inputs(graph):
        if value.type.tensor_type.elem_type == TensorProto.STRING:
            raise InvalidModel(
                f"input {value.name!r} takes text, and TVM computes with numbers",
                hint="export only the part of the model after the text processing",
            )


def _copy_for_checker(model: ModelProto) -> ModelProto:
    """Return a copy of a model for ONNX's checker. Weights in other files become inputs. What
    the checker requires but exporters omit and onnxruntime does not need is added: domains,
    types, the graph's name, and an IR version in which weights are no inputs."""
    result = ModelProto()
    result.CopyFrom(model)
    result.ClearField("metadata_props")
    result.graph.name = result.graph.name or "graph"
    result.ir_version = max(result.ir_version, 4)
    input_names = {value.name for value in model.graph.input}
    tensors, external = model.graph.initializer, TensorProto.EXTERNAL
    external_weights = [tensor for tensor in tensors if tensor.data_location == external]
    embedded_weights = [tensor for tensor in tensors if tensor.data_location != external]
    result.graph.ClearField("initializer")
    result.graph.initializer.extend(embedded_weights)
    result.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in external_weights
        if tensor.name not in input_names
    )
    domain, homeless = lower_contrib_operators.DOMAIN, lower_contrib_operators.HOMELESS
    for node in result.graph.node:
        node.domain = domain if node.op_type in homeless else node.domain
    if all(entry.domain != domain for entry in result.opset_import):
        result.opset_import.append(helper.make_opsetid(domain, 1))
    for value in (*result.graph.input, *result.graph.output):
        kind = value.type.tensor_type
        kind.elem_type = kind.elem_type or TensorProto.FLOAT
        kind.shape.SetInParent()
    return result


def _unreadable(file: Path) -> InvalidModel:
    with file.open("rb") as stream:
        sample = stream.read(SAMPLE_BYTES)
        stream.seek(max(0, file.stat().st_size - SAMPLE_BYTES))
        file_format = foreign_format(sample + stream.read())
    if file_format:
        return InvalidModel(f"this is {file_format.name}, not ONNX", hint=file_format.hint)
    return InvalidModel(
        "these bytes are not an ONNX model, or the file was cut short", hint="copy or export the model again"
    )


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for inner in unroll_loops.inner_graphs(node):
            yield from _graphs(inner)


def _nodes(model: ModelProto) -> Iterator[NodeProto]:
    for graph in _graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def refuse_unknown_operators(model: ModelProto, operators: Set[str]) -> None:
    """Raise InvalidModel if a simplified model has operators not in `operators`."""
    unknown = sorted({node.op_type for node in _nodes(model)}.difference(operators))
    if unknown:
        raise _unknown(unknown)


def _unknown(names: Sequence[str]) -> InvalidModel:
    loops = [name for name in names if name in unroll_loops.KINDS]
    hint = (
        f"export the model with steps that are counted beforehand, at most {unroll_loops.UNROLLED:,} nodes "
        f"in all: the number of iterations of {loops[0]} is known only at run time"
        if loops
        else "export with standard ONNX operators, e.g. torch.onnx.export(..., opset_version=17)"
    )
    examples = ", ".join(map(quote_untrusted, names[:MOST_NAMES]))
    return InvalidModel(f"TVM cannot import these operators: {examples}", hint=f"{hint}   {LIST}")


def describe_tvm_error(error: BaseException) -> str:
    """Describe a TVM error in one line, without the source text of the failed check."""
    text = _CONDITION.sub("", first_line(error)).strip()
    if isinstance(error, KeyError):
        return f"the name {text} is not defined"
    if text and not isinstance(error, AssertionError | AttributeError | TypeError):
        return text[:TOLD]
    return f"the operator has a form that is not supported{f' ({text[:TOLD]})' if text else ''}"


_CONDITION: Final = re.compile(r"^.*?Check failed: .*?( is false:| : |$)")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return next(iter(str(error).strip().splitlines()), "")
