"""Convert LSTM, GRU and RNN, which TVM's importer lacks, to a matmul and a scan function.

DynamicQuantizeLSTM, onnxruntime's LSTM with weights of 8 bits, multiplies these bytes where
the target has an instruction. Data and states are rounded to 16 bits; onnxruntime takes 8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax

from mallorn.graphc.convert.node_inputs import constant_array, first_inputs
from mallorn.graphc.core import vector_lanes
from mallorn.graphc.quant.llvm_byte_dot_products import best_quad_function
from mallorn.graphc.rnn import scan_function

_PLAIN = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
_STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
_DEFAULT_NUMBERS = {
    ("hardsigmoid", "alpha"): 0.2,
    ("hardsigmoid", "beta"): 0.5,
    ("leakyrelu", "alpha"): 0.01,
}
_SEQUENCE_LENGTHS, _INITIAL, _PEEPHOLES, _QUANTIZED = 4, 5, 7, 8


@dataclass(frozen=True)
class ByteWeights:
    """Weights as integers [directions, outputs, inputs], and scales [directions, outputs, 1]."""

    steps: Any
    scale: Any

    @property
    def numbers(self) -> Any:
        return (self.steps * self.scale).astype("float32")

    @property
    def are_bytes(self) -> bool:
        return bool(self.steps.min() >= -128 and self.steps.max() <= 127)


def _convert_quantized(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """Convert DynamicQuantizeLSTM. Raises ValueError unless weights and scales are constant."""
    inputs = first_inputs(inputs, _QUANTIZED + 4)
    weights = []
    for index, place in ((1, _QUANTIZED), (2, _QUANTIZED + 2)):  # weights; scale, zero point
        places = index, place, place + 1
        steps, scale, zero = (constant_array(inputs[at], params) for at in places)
        if steps is None or scale is None or (zero is None and inputs[place + 1] is not None):
            raise ValueError("the DynamicQuantizeLSTM needs constant weights and scales")
        directions, outputs = len(steps), steps.shape[2]
        steps = steps.astype("int32").transpose(0, 2, 1)
        if zero is not None:  # one per direction, or per output, as scales are
            steps = steps - zero.astype("int32").reshape(directions, -1, 1)
        scales = np.broadcast_to(scale.reshape(directions, -1, 1), (directions, outputs, 1))
        weights.append(ByteWeights(steps, scales))
        inputs[index] = relax.const(weights[-1].numbers)
    is_plain = _activations("LSTM", attrs, directions) == _PLAIN["LSTM"]
    has_instruction = best_quad_function(vector_lanes.lanes()) is not None
    fits = is_plain and has_instruction and all(each.are_bytes for each in weights)
    return _convert("LSTM", builder, inputs, attrs, params, weights if fits else None)


def _multiply_upper_and_lower_bytes(builder: Any, rows: Any, steps: Any, scale: Any) -> Any:
    """Emit rows, rounded to 16 bits, times a matrix of bytes with a scale per column: by a
    product of the upper and the lower bytes of the rows."""
    op, emit, number = relax.op, builder.emit, partial(relax.const, dtype="float32")
    count, outputs = int(rows.ty.shape[0]), steps.shape[1]
    most = emit(op.maximum(emit(op.max(emit(op.abs(rows)))), number(np.finfo("float32").tiny)))
    unit = emit(op.divide(most, number(float(scan_function.LARGEST_HALF))))
    halves = emit(op.astype(emit(op.round(emit(op.divide(rows, unit)))), "int32"))
    upper = emit(op.right_shift(halves, relax.const(8, "int32")))
    upper = emit(op.add(upper, relax.const(128, "int32")))
    lower = emit(op.bitwise_and(halves, relax.const(255, "int32")))
    data = emit(op.astype(emit(op.concat([upper, lower], axis=0)), "uint8"))
    sums = emit(op.matmul(data, relax.const(np.ascontiguousarray(steps)), out_dtype="int32"))
    upper, lower = (
        emit(op.astype(emit(op.strided_slice(sums, [0], [start], [start + count])), "float32"))
        for start in (0, count)
    )
    shift = relax.const(128.0 * steps.sum(axis=0, dtype="float32").reshape(1, outputs))
    total = emit(op.add(emit(op.multiply(emit(op.subtract(upper, shift)), number(256.0))), lower))
    return emit(op.multiply(total, emit(op.multiply(relax.const(scale.reshape(1, outputs)), unit))))


def _convert(
    kind: str,
    builder: Any,
    inputs: Any,
    attrs: Any,
    params: Any,
    byte_weights: Sequence[ByteWeights] | None = None,
) -> Any:
    """Convert a layer; `byte_weights` of data and states are multiplied as bytes."""
    inputs = first_inputs(inputs, _PEEPHOLES + 1)
    data = inputs[0]
    constants = *inputs[1:4], inputs[_PEEPHOLES]
    weights, recurrent, bias, peepholes = (constant_array(value, params) for value in constants)
    is_computed = [value is not None for value in constants] != [
        array is not None for array in (weights, recurrent, bias, peepholes)
    ]
    if weights is None or recurrent is None or is_computed:
        raise ValueError(f"the {kind} needs constant weights")
    data_shape = data.ty.shape
    if data_shape is None or not all(isinstance(size, tvm.tirx.IntImm) for size in data_shape):
        raise ValueError(f"the sequences of the {kind} have no fixed length")
    if data.ty.dtype != "float32":
        raise ValueError(f"the sequences of the {kind} are {data.ty.dtype}, not float32")
    steps, batch, _ = map(int, data_shape)
    direction = _lowercase_text(attrs.get("direction", b"forward"))
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    resets_late = kind != "GRU" or bool(attrs.get("linear_before_reset", 0))
    lengths = inputs[_SEQUENCE_LENGTHS]
    known_lengths = constant_array(lengths, params)
    functions = _activations(kind, attrs, len(backwards))
    scan = scan_function.Scan(
        kind,
        steps=steps,
        batch=batch,
        units=int(recurrent.shape[-1]),
        backwards=backwards,
        lanes=vector_lanes.lanes(),
        registers=vector_lanes.registers(),
        resets_late=resets_late,
        functions=functions,
        has_peepholes=inputs[_PEEPHOLES] is not None,
        has_lengths=lengths is not None and (known_lengths is None or bool(np.any(known_lengths < steps))),
        byte_dot=best_quad_function(vector_lanes.lanes()) if byte_weights else None,
    )
    unsupported = {
        "a clip": bool(attrs.get("clip")),
        "an input gate that is coupled to the forget gate (input_forget)": bool(attrs.get("input_forget")),
    }
    if wrong := [feature for feature, is_used in unsupported.items() if is_used]:
        raise ValueError(f"the {scan.kind} has {wrong[0]}")
    if bias is None:
        bias = np.zeros((len(scan.backwards), 2 * scan.gates * scan.units), "float32")
    input_bias, state_bias = np.split(bias[:, :, None], 2, axis=1)

    # The inputs' contribution to all gates, for all steps at once.
    offsets = scan.pack(input_bias) + scan.pack(state_bias)
    if scan.kind == "GRU" and scan.resets_late:  # the scan adds the hidden gate's bias
        offsets[..., 2 :: scan.gates, :] -= scan.pack(state_bias)[..., 2 :: scan.gates, :]
    width = int(data.ty.shape[-1])
    rows = relax.op.reshape(data, (scan.steps * scan.batch, width))
    if byte_weights:
        steps_of_data = scan.pack(byte_weights[0].steps).reshape(width, -1).astype("int8")
        scale = scan.pack(byte_weights[0].scale).astype("float32")
        product = _multiply_upper_and_lower_bytes(builder, builder.emit(rows), steps_of_data, scale)
    else:
        input_weights = scan.pack(weights).reshape(width, -1).astype("float32")
        product = relax.op.matmul(rows, relax.const(input_weights))
    total = relax.op.add(product, relax.const(offsets.reshape(-1).astype("float32")))
    factors = [builder.emit(relax.op.reshape(total, scan.shapes["X"]))]

    # Axes: directions, parts, states, sums, lanes.
    if byte_weights:
        factors.append(relax.const(scan.pack_bytes(byte_weights[1].steps.astype("int8"))))
    else:
        state_weights = np.moveaxis(scan.pack(recurrent), 0, 2)
        factors.append(relax.const(np.ascontiguousarray(state_weights, dtype="float32")))
    zeros = relax.const(np.zeros(scan.shapes["H"], "float32"))
    factors += [zeros if value is None else value for value in inputs[_INITIAL:][: _STATES[kind]]]
    if kind == "GRU":
        factors.append(relax.const(scan.pack(state_bias)[0].astype("float32")))
    if peepholes is not None:  # of input, output and forget gate; candidates have none
        gates = np.pad(peepholes, ((0, 0), (0, scan.units)))[:, :, None]
        factors.append(relax.const(scan.pack(gates)[0].astype("float32")))
    if scan.has_lengths:
        factors.append(builder.emit(relax.op.astype(lengths, "float32")))
    if byte_weights:
        sums = byte_weights[1].steps.sum(axis=2, keepdims=True)
        packed = (scan.pack(each)[0].astype("float32") for each in (byte_weights[1].scale, 128 * sums))
        factors += [relax.const(each) for each in packed]
    result = [relax.TensorType(shape, "float32") for shape in scan.results.values()]
    function = builder.add_func(scan_function.build_function(scan), f"{kind.lower()}_scan")
    results = builder.emit(relax.call_tir(function, factors, result))
    return relax.Tuple([builder.emit(relax.TupleGetItem(results, index)) for index in range(len(result))])


def _activations(kind: str, attrs: Any, directions: int) -> tuple[str, ...]:
    """Return the activations of a layer: names of squashing functions, or expressions.
    Raises ValueError for others, and if directions have different ones."""
    names = tuple(map(_lowercase_text, attrs.get("activations", ()))) or _PLAIN[kind] * directions
    given = {letter: iter(attrs.get(f"activation_{letter}", ())) for letter in ("alpha", "beta")}
    functions = []
    for name in names:
        if name not in (*scan_function.ACTIVATIONS, scan_function.SIGMOID, scan_function.TANH):
            raise ValueError(f"the {kind} has activations {', '.join(names)}")
        function = scan_function.ACTIVATIONS.get(name, name)
        for letter, numbers in given.items():
            if f"{{{letter}}}" in function:
                number = next(numbers, _DEFAULT_NUMBERS[name, letter])
                function = function.replace(f"{{{letter}}}", repr(float(number)))
        functions.append(function)
    count = len(names) // directions
    if functions[:count] * directions != functions:
        raise ValueError(f"the directions of the {kind} have different activations: {', '.join(names)}")
    return tuple(functions[:count])


def _lowercase_text(value: Any) -> str:
    return (value.decode() if isinstance(value, bytes) else str(value)).lower()


CONVERTERS: Mapping[str, Callable[..., Any]] = {
    **{kind: partial(_convert, kind) for kind in _PLAIN},
    "DynamicQuantizeLSTM": _convert_quantized,
}
