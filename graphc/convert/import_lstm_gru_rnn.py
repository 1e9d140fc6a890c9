"""Convert LSTM, GRU and RNN, which TVM's importer lacks, to a matmul and a scan function."""

from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax

from mallorn.graphc.convert.node_inputs import constant_array, first_inputs
from mallorn.graphc.core import vector_lanes
from mallorn.graphc.rnn import scan_function

_PLAIN = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
_STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
_DEFAULT_NUMBERS = {
    ("hardsigmoid", "alpha"): 0.2,
    ("hardsigmoid", "beta"): 0.5,
    ("leakyrelu", "alpha"): 0.01,
}
_SEQUENCE_LENGTHS, _INITIAL, _PEEPHOLES = 4, 5, 7


def _convert(kind: str, builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
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
        resets_late=resets_late,
        functions=functions,
        has_peepholes=inputs[_PEEPHOLES] is not None,
        has_lengths=lengths is not None and (known_lengths is None or bool(np.any(known_lengths < steps))),
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
    input_weights = scan.pack(weights).reshape(width, -1).astype("float32")
    product = relax.op.matmul(rows, relax.const(input_weights))
    total = relax.op.add(product, relax.const(offsets.reshape(-1).astype("float32")))
    factors = [builder.emit(relax.op.reshape(total, scan.shapes["X"]))]

    # Axes: directions, parts, states, sums, lanes.
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


CONVERTERS = {kind: partial(_convert, kind) for kind in _PLAIN}
