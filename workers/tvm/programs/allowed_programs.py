"""Refuse programs and traces that are more than arithmetic in loops, before TVM reads them.

Programs, traces and tuning records come from other people's datasets, logs and directories,
and TVM compiles everything in them: calls of any C function, C or LLVM source in a pragma.
This module parses both formats itself (the node graph that ``tvm.ir.save_json`` writes, and
the JSON of a trace) and refuses everything that is not on one of its allow-lists. It checks
Relax modules, which users submit as models, in the same way.

LLVM IR is allowed only if it equals a function that this version's graph passes insert.
"""

import base64
import json
import math
import re
import struct
import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import InvalidModel, InvalidRequest, Unschedulable
from mallorn.core.storable_json import quote_untrusted
from mallorn.core.values.candidate import SKETCH_FACTS
from mallorn.graphc.quant import llvm_byte_dot_products, tile_instructions

HINT: Final = "delete what you imported from a source that you do not trust   (docs/security.md)"
MOST_NODES: Final = 1 << 20
MOST_STEPS: Final = 1 << 14
LARGEST: Final = 2**31  # extents, factors and lengths of vectors in a trace
_LARGEST_BLOCK: Final = 1 << 12


#: The allow-lists of `allowed_programs.toml`, by name.
_LISTS: Final = {
    name: frozenset(words.split())
    for name, words in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}
NODES: Final = _LISTS["nodes"]
_MAP_NODES: Final = frozenset(kind for kind in NODES if kind.startswith("prim.")) | _LISTS["nodes_of_maps"]
_EXTERN: Final = frozenset({"tirx.call_extern", "tirx.call_pure_extern"})
OPS: Final = _LISTS["operators"]
_AXES: Final = _LISTS["axes_in_place"]
_TENSOR: Final = struct.Struct("<QQiiiBBH")  # magic, reserved, device and its index, dimensions, type
_TENSOR_MAGIC: Final = 0xDD5E40F096B4A13F
_ATTRIBUTES: Final = _LISTS["attributes"]
_OWN_KEY: Final = re.compile(r"mallorn[_.]\w{1,40}", re.ASCII)
_IMPORT: Final = "pragma_import_llvm"
_SAFE_NAME: Final = re.compile(r"""[^;{}"'\\#=]{0,1000}""")
_DTYPE: Final = re.compile(r"(void|(bool|(u?int|b?float)\d{1,3}(_\w{1,12})?)(x\d{1,4})?)?", re.ASCII)
_DEFINITION: Final = re.compile(r"^define linkonce_odr [^@]*@(\w+)\(", re.MULTILINE)
_BLOCK: Final = re.compile(r"@mallorn_(?:split|block_\d)_(\d{1,5})_")

KINDS: Final = _LISTS["instructions"]
_NAME: Final = re.compile(r"[\w.]{0,200}", re.ASCII)
_SCOPE: Final = re.compile(
    r"global|local|warp|shared(\.dyn)?|wmma\.(matrix_a|matrix_b|accumulator)|m16n8k8\.matrix[ABC]"
    r"|metal\.simdgroup"
)
_NO_TEXT: Final = re.compile("(?!)")
#: Strings that instructions accept. TVM looks up a tensor intrinsic's name in its registry.
_WORDS: Final = {
    "Bind": re.compile(r"(blockIdx|threadIdx|vthread)(\.[xyz])?"),
    "CacheRead": _SCOPE,
    "CacheWrite": _SCOPE,
    "GetSBlock": _NAME,
    "ReadAt": _SCOPE,
    "SetScope": _SCOPE,
    "Tensorize": _NAME,
    "WriteAt": _SCOPE,
}
#: Keys of annotations, and the strings that they accept.
ANNOTATIONS: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(_LISTS["annotations"], _NO_TEXT),
    "meta_schedule.auto_tensorize": _NAME,
    "meta_schedule.auto_tensorize_init": _NAME,
    "meta_schedule.tiling_structure": re.compile("[SR]{1,16}"),
    "permuted_layout": _NAME,
    SKETCH_FACTS: re.compile(r'[\w \[\]{}:,."+*/-]{0,2000}', re.ASCII),
}
_RELAID: Final = "meta_schedule.layout_rewrite_preproc"
_VARIABLE: Final = re.compile(r"[a-z]\d{1,6}|_|None", re.ASCII)


class TraceRefused(InvalidRequest):
    """A trace holds an instruction that no schedule needs."""


def check_program(tir: str) -> None:
    """Raise Unschedulable unless a program (JSON) is one function of allowed operations."""
    try:
        (graph := _Graph(tir, NODES)).check_module()
        if len(graph.of_kind("tirx.PrimFunc")) != 1:
            raise ValueError("the program is not a module with one function")
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        message = f"a stored program is refused: {describe_refusal(error)}"
        raise Unschedulable(message, hint=HINT) from None


def check_network(text: str) -> None:
    """Raise InvalidModel unless a Relax module (JSON) calls only allowed operators and its own functions."""
    try:
        (graph := _Network(text, _Network.nodes)).check_module()
        for constant in graph.of_kind("ffi.Tensor"):
            _check_tensor(constant)
    except (LookupError, TypeError, ValueError, RecursionError, struct.error) as error:
        hint = "leave out calls of packed and external functions   (docs/torch.md)"
        raise InvalidModel(f"the module of TVM is refused: {describe_refusal(error)}", hint=hint) from None


def read_trace(trace: str) -> Any:
    """Return the instructions of a sketch's trace (JSON). Raises TraceRefused if one of
    them is not allowed, or belongs to postprocessing."""
    try:
        steps = json.loads(trace)
    except (ValueError, RecursionError):
        raise TraceRefused("a trace is refused: the text is not JSON", hint=HINT) from None
    check_trace(steps)
    if any(kind == "EnterPostproc" or _RELAID in attributes for kind, _, attributes, _ in steps):
        # A re-layout marked here would not be timed; only postprocessing may mark weights.
        raise TraceRefused("a trace is refused: it holds steps that only follow a sketch", hint=HINT)
    return steps


def check_trace(steps: Any, decisions: Any = ()) -> None:
    """Raise TraceRefused if an instruction or decision of a trace (JSON) is not allowed."""
    try:
        if not isinstance(steps, list):
            raise ValueError("the trace is not a list of instructions")
        if len(steps) > MOST_STEPS:
            raise ValueError(f"the trace has {len(steps)} instructions, more than {MOST_STEPS}")
        for kind, inputs, attributes, outputs in steps:
            _check_step(kind, inputs, attributes)
            _check_literals(outputs, _VARIABLE)
        for index, decision in decisions:
            # TVM checks the rest itself, but crashes on an index that is out of range.
            if not 0 <= index < len(steps):
                raise ValueError("a decision names an instruction that does not exist")
            _check_literals(decision, _NO_TEXT)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise TraceRefused(f"a trace is refused: {describe_refusal(error)}", hint=HINT) from None


def describe_refusal(error: Exception) -> str:
    """Return one printable sentence about a text that is refused."""
    if isinstance(error, RecursionError):
        return "the text is nested too deeply"
    text = str(error) if isinstance(error, ValueError) else "the text has another form than TVM writes"
    return quote_untrusted(text, 200)


def _check_step(kind: str, inputs: Sequence[Any], attributes: Sequence[Any]) -> None:
    if kind not in KINDS:
        raise ValueError(f"the instruction {kind} is not allowed")
    if kind in ("Annotate", "Unannotate"):
        (key,) = attributes
        if key not in ANNOTATIONS and not _OWN_KEY.fullmatch(key):
            raise ValueError(f"the annotation {key} is not allowed")
        block, *values = inputs
        words = ANNOTATIONS.get(key, _NO_TEXT)
        _check_literals(block, _VARIABLE)
        _check_literals(values, re.compile(rf'{_VARIABLE.pattern}|"({words.pattern})"'))
        return
    maps = []
    if kind == "TransformLayout":
        block, index_map = inputs
        _, _, pad_value, _ = attributes
        if pad_value is not None:
            raise ValueError("TransformLayout pads with a value")
        inputs, maps = [block], [index_map]
    elif kind == "TransformBlockLayout":
        maps, attributes = list(attributes), []
    for text in maps:
        _Graph(text, _MAP_NODES).check_nodes()
    _check_literals(inputs, _VARIABLE)
    _check_literals(attributes, _WORDS.get(kind, _NO_TEXT))


def _check_literals(value: Any, words: re.Pattern[str]) -> None:
    if isinstance(value, str):
        if not words.fullmatch(value):
            raise ValueError(f"the text {value!r} is not allowed there")
    elif isinstance(value, list):
        for item in value:
            _check_literals(item, words)
    elif value is not None and not (isinstance(value, int | float) and -LARGEST <= value < LARGEST):
        raise ValueError(f"{value!r} is not a number that schedules contain")


class _Graph:
    """An untrusted node graph, parsed from JSON in the format of ``tvm.ir.save_json``."""

    operators = OPS
    attributes = _ATTRIBUTES
    callees = frozenset({"ir.Op"})
    call_attributes = frozenset({"None"})
    symbols = re.compile("main")

    def __init__(self, text: str, allowed: Collection[str]) -> None:
        graph = json.loads(text, object_pairs_hook=_json_object)
        self._nodes: list[Mapping[str, object]] = graph["nodes"]
        self._root: int = graph["root_index"]
        self._allowed = allowed
        if graph.keys() - {"nodes", "root_index", "metadata"} or graph["metadata"].keys() - {"tvm_version"}:
            raise ValueError("the graph has parts that programs do not have")
        if len(self._nodes) > MOST_NODES:
            raise ValueError(f"the program has {len(self._nodes)} nodes, more than {MOST_NODES}")

    def check_module(self) -> None:
        """Raise ValueError unless this is a module of functions with allowed calls."""
        self.check_nodes()
        if self._kind(self._root) != "ir.IRModule":
            raise ValueError("the program is not a module")
        texts = set[str]()
        for statement in self.of_kind("tirx.AttrStmt"):  # only pragmas that import LLVM IR of our passes
            key = self._text(statement["attr_key"])
            if key != _IMPORT:
                raise ValueError(f"the attribute {key} is not allowed")
            text = self._immediate(statement["value"])
            block = _BLOCK.search(text)
            if text not in _own_llvm_texts(int(block[1]) if block else 0):
                raise ValueError("the program holds LLVM code that no pass of this version writes")
            texts.add(text)
        defined = {name for text in texts for name in _DEFINITION.findall(text)}
        for call in self.of_kind("ir.Call"):
            callee, attributes = self._kind(call["op"]), self._kind(call["attrs"])
            if callee not in self.callees or attributes not in self.call_attributes:
                raise ValueError("the program calls something that is not an operator")
            if callee == "ir.GlobalVar":
                continue
            operator = self._data(call["op"])
            if operator == "tirx.reinterpret" and self._kind(call["ty"]) != "ir.PrimType":
                raise ValueError("the program uses a number as a memory address")
            if operator not in _EXTERN:
                continue
            function = self._immediate(self._data(call["args"])[0])
            if function not in defined:
                raise ValueError(f"the program calls {function}, which is not allowed")
        for entries in self.of_kind("ffi.Map"):
            for key, value in zip(entries[::2], entries[1::2], strict=True):
                if self._kind(key) == "ir.GlobalVar" or self._kind(value) == "ir.GlobalVar":
                    continue
                name = self._text(key)
                if name not in self.attributes and not _OWN_KEY.fullmatch(name):
                    raise ValueError(f"the attribute {name} is not allowed")
                if name == "global_symbol" and not self.symbols.fullmatch(self._text(value)):
                    raise ValueError(f"it takes the symbol {self._text(value)}")
        for name in self.of_kind("ffi.String"):
            # Some code generators write names into sources without escaping them.
            if name not in texts and not (_SAFE_NAME.fullmatch(name) and name.isprintable()):
                raise ValueError(f"it has the name {name[:80]!r}")

    def check_nodes(self) -> None:
        """Raise ValueError if a node is not of an allowed form or refers to a later node."""
        for index, node in enumerate(self._nodes):
            kind, data = node["type"], node.get("data")
            if kind not in self._allowed or node.keys() - {"type", "data"}:
                raise ValueError(f"a node is a {kind}, which is not allowed")
            match data:
                case dict():
                    for name, value in data.items():
                        if isinstance(value, str):
                            if name not in ("dtype", "out_dtype") or not _DTYPE.fullmatch(value):
                                raise ValueError(f"a node at {index} has the text {value!r} as its {name}")
                        elif value is not None and not isinstance(value, float):
                            is_axis = kind in _AXES and name.endswith("axis")
                            minimum = -(2**63) if is_axis or name in ("ndim", "value") else 0
                            if not minimum <= value < 2**63:
                                raise ValueError(f"a node at {index} has {value} as its {name}")
                case list() if not all(isinstance(item, int) and 0 <= item < index for item in data):
                    raise ValueError("a node refers to a later node")
                case str() if kind == "DataType" and not _DTYPE.fullmatch(data):
                    raise ValueError(f"the program has the type {data!r}")
                case str() if kind == "ir.Op" and data not in self.operators:
                    raise ValueError(f"the program calls {data}, which is not allowed")
                case int() if not -(2**63) <= data < 2**63:
                    raise ValueError("a whole number has more than 64 bits")

    def of_kind(self, kind: str) -> list[Any]:
        return [node["data"] for node in self._nodes if node["type"] == kind]

    def _node(self, index: int) -> Mapping[str, object]:
        if index < 0:  # Python would count from the end; TVM would read before node 0
            raise ValueError("a node refers to a negative index")
        return self._nodes[index]

    def _kind(self, index: int) -> str:
        return str(self._node(index)["type"])

    def _data(self, index: int) -> Any:
        return self._node(index)["data"]

    def _text(self, index: int) -> str:
        if self._kind(index) != "ffi.String" or not isinstance(self._data(index), str):
            raise ValueError("a name is not a text")
        return str(self._data(index))

    def _immediate(self, index: int) -> str:
        if self._kind(index) != "ir.StringImm":
            raise ValueError("the program calls a function whose name is not a text")
        return self._text(self._data(index)["value"])


class _Network(_Graph):
    """An untrusted Relax module."""

    nodes = NODES | _LISTS["nodes_of_networks"] | _LISTS["attributes_of_calls"]
    operators = OPS | {f"relax.{name}" for name in _LISTS["operators_of_networks"]}
    attributes = _ATTRIBUTES | _LISTS["attributes_of_networks"]
    callees = frozenset({"ir.Op", "ir.GlobalVar"})
    call_attributes = _LISTS["attributes_of_calls"] | {"None"}
    symbols = _NAME


def _check_tensor(text: str) -> None:
    """Raise ValueError or struct.error unless a constant has as many bytes as its header says."""
    content = base64.b64decode(text, validate=True)
    magic, _, device, index, dimensions, code, bits, lanes = _TENSOR.unpack_from(content)
    *shape, size = struct.unpack_from(f"<{dimensions + 1}q", content, _TENSOR.size)
    has_numbers = code in (0, 1, 2, 4, 6) and bits in (8, 16, 32, 64) and min(shape, default=0) >= 0
    if (magic, device, index, lanes) != (_TENSOR_MAGIC, 1, 0, 1) or not has_numbers:
        raise ValueError("a constant is not a tensor of numbers")
    if not size == math.prod(shape) * bits // 8 == len(content) - _TENSOR.size - 8 * (dimensions + 1):
        raise ValueError("a constant has another size than its shape")


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    """Convert a JSON object's pairs to a dict. Raises ValueError for a duplicate key."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key occurs twice")
    return fields


@lru_cache(maxsize=64)
def _own_llvm_texts(block: int) -> frozenset[str]:
    """Return our passes' LLVM IR: tile instructions, products of bytes, and dot products
    for `block` values a scale."""
    tiles = {instruction.text for instruction in tile_instructions.INSTRUCTIONS}
    tiles.update(
        llvm_byte_dot_products.build_quad_function(dot).text
        for dot in llvm_byte_dot_products.INSTRUCTIONS.values()
    )
    if not 0 < block <= _LARGEST_BLOCK:
        return frozenset(tiles)
    bits = llvm_byte_dot_products.NIBBLES, llvm_byte_dot_products.BYTES
    builders = llvm_byte_dot_products.build_input_quantizer, llvm_byte_dot_products.build_block_dot_product
    parts = product(builders, llvm_byte_dot_products.INSTRUCTIONS.values(), bits)
    return frozenset(tiles.union(build(dot, block, width).text for build, dot, width in parts))
