"""Prove that tensor functions of other people access their buffers only inside of them.

TVM compiles an access without a check, so a wrong index reads or writes memory of the process.
`check_function` walks a function and proves each index by TVM's arithmetic, from the extents of
loops, the domains of blocks and the conditions around it. A number that arithmetic does not follow
stands for every number of its type, so a program that clamps such a number passes. Pointers
go only to functions of our graph passes.
"""

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from math import ceil, floor, inf, isfinite, prod
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Range, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer, ProofStrength

from mallorn.core.errors import InvalidModel
from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.graphc.quant import (
    arm_fp16_instructions,
    dot_products,
    int8_instructions,
    tile_instruction,
    tile_instructions,
)
from mallorn.graphc.quant.llvm_byte_dot_products import INSTRUCTIONS as BYTE_DOTS
from mallorn.graphc.quant.llvm_byte_dot_products import build_quad_function
from mallorn.workers.tvm.programs.allowed_programs import OPS, describe_refusal
from mallorn.workers.tvm.programs.program_blocks import blocks_of, index_bounds

Interval = tuple[int, int]  # the smallest and the largest value
_MOST_BYTES: Final = 1 << 40  # of a buffer
_MOST_SIZE: Final = (1 << 31) - 1  # of a dimension that is known only when the function is called
_INFINITE: Final = 1 << 70  # beyond every integer type
_QUOTED: Final = 80  # characters of an index in an error
_SUMS: Final = (tirx.Add, tirx.Sub, tirx.Mul)
_ARITHMETIC: Final = (*_SUMS, tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
_COMPARISONS: Final = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_CHOICES: Final = (*_COMPARISONS, tirx.And, tirx.Or, tirx.Max, tirx.Min)
_BITS: Final = (tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift)
_BINARY: Final = (*_ARITHMETIC, *_CHOICES, *_BITS)
#: The arguments that TVM makes an expression from.
_ARGUMENTS: Final[Mapping[Any, Sequence[str]]] = {
    tirx.Broadcast: ("value", "lanes"),
    tirx.Ramp: ("base", "stride", "lanes"),
    tirx.Select: ("condition", "true_value", "false_value"),
    **dict.fromkeys((tirx.Not, tirx.BitwiseNot), "a"),
    **dict.fromkeys(_BINARY, "ab"),
}
_IF, _ADDRESS, _REINTERPRET = "prim.if_then_else", "tirx.address_of", "tirx.reinterpret"
_ACCESS: Final = "tirx.tvm_access_ptr"
_POINTERS: Final = frozenset({_ADDRESS, _ACCESS, "tirx.buffer_data"})
_EXTERN: Final = frozenset({"tirx.call_extern", "tirx.call_pure_extern"})
_REFUSED: Final = _POINTERS | {"tirx.atomic_add"}
_WHOLE_NUMBERS: Final = frozenset(f"tirx.{name}" for name in ("floor", "ceil", "trunc", "round", "nearbyint"))
_REAL_ARITHMETIC: Final = {tirx.Add: operator.add, tirx.Sub: operator.sub, tirx.Mul: operator.mul}
_LARGEST_ROUNDING: Final = 1e-2  # of some float16 operations, as a share of the number
_SPLIT: Final = re.compile(r"mallorn_split_(\d+)_\d+", re.ASCII)
_DOT: Final = re.compile(r"mallorn_block_(\d+)_(\d+)_(\d+)_\d+", re.ASCII)
# Functions that take no address, by the type of their sums.
_SUMS_OF_DOTS: Final = {
    **{dot.function: dot.sums for dot in int8_instructions.INSTRUCTIONS.values()},
    **{build_quad_function(dot).name: "int32" for dot in BYTE_DOTS.values()},
    **dict.fromkeys((dot_products.DOT, arm_fp16_instructions.FUNCTION), "float32"),
}
_TILE_ROW: Final = 64  # bytes of a row of sums
# Of what our LLVM functions count, so that products have less than 64 bits.
_MOST_COUNT: Final = 1 << 19
_TILES: Final = frozenset(tile.function for tile in tile_instructions.INSTRUCTIONS)


class OutOfBounds(ValueError):
    """An access of a program may lie outside of its buffer."""


def check_bounds(mod: Any) -> None:
    """Raise ValueError, with the buffer and the index, unless all accesses of a program lie
    in bounds. Index tensors have the values that candidates are measured with."""
    check_function(mod["main"], _argument_values(mod))


def _argument_values(mod: Any) -> dict[int, Interval]:
    bounds = index_bounds(blocks_of(mod))
    parameters = {hash(param) for param in mod["main"].params}
    return {key: (low, high - 1) for key, (low, high) in bounds.items() if key in parameters}


def check_schedule(mod: Any) -> None:
    """Check a program that a trace was applied to. Threads of GPUs and instructions that replace
    blocks are not followed: such a program is not proved, and runs on a device alone."""
    loops, calls = (collect_nodes(mod["main"], kind) for kind in (tirx.For, Call))
    has_threads = any(loop.kind == tirx.ForKind.THREAD_BINDING for loop in loops)
    if not has_threads and all(call.op.name in OPS for call in calls):
        values = _argument_values(mod)
        check_function(mod["main"], values | _values_of_copies(mod["main"], values))


def _values_of_copies(function: Any, values: Mapping[int, Interval]) -> dict[int, Interval]:
    """Return the values of buffers into which a schedule copies an argument of known
    values. TVM sees to it that no element is read before it was written."""
    stores: dict[int, list[Any]] = {}
    for store in collect_nodes(function.body, tirx.BufferStore):
        stores.setdefault(hash(store.buffer), []).append(store.value)
    copies = {}
    for buffer, stored in stores.items():
        sources = {hash(value.source) if isinstance(value, TensorLoad) else 0 for value in stored}
        if len(sources) == 1 and (source := sources.pop()) in values:
            copies[buffer] = values[source]
    return copies


def check_functions(mod: Any) -> None:
    """Raise InvalidModel unless the tensor functions of a Relax module stay in their
    buffers, whatever their index tensors hold."""
    for var, function in mod.functions_items():
        try:
            if isinstance(function, tirx.PrimFunc):
                check_function(function, {})
        except (ValueError, RecursionError) as error:
            message = f"the module of TVM is refused: {describe_refusal(error)} ({var.name_hint})"
            hint = "bound its indices by T.max and T.min   (docs/torch.md)"
            raise InvalidModel(message, hint=hint) from None


def check_function(function: Any, argument_values: Mapping[int, Interval]) -> None:
    """Check a tensor function likewise. `argument_values` has the values of integer
    arguments by the hash of their buffers; others may have any value of their type."""
    try:
        _Walk(function, argument_values).check()
    except (AttributeError, TypeError, tvm.error.InternalError):
        raise ValueError("the program has another form than TVM writes") from None


class _Buffer:
    """A declared buffer; strides are of its elements in memory."""

    def __init__(self, var: Any, strides: Sequence[int] | None = None) -> None:
        self.name, self.shape, self.dtype = str(var.name), list(var.ty.shape), var.ty.dtype.dtype
        self.bytes = 0  # of those whose size is known
        self.width = -(-self.dtype.bits * self.dtype.lanes // 8)  # bytes of an element
        self.strides = strides or []
        if not all(isinstance(size, tirx.IntImm) for size in self.shape):
            return
        sizes = [int(size) for size in self.shape]
        if strides is None:
            self.strides = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
        axes = zip(sizes, self.strides, strict=True)
        last = sum((size - 1) * stride for size, stride in axes)
        self.bytes = 0 if 0 in sizes else (last + 1) * self.width
        if min(sizes, default=0) < 0 or self.bytes > _MOST_BYTES:
            raise ValueError(f"the program has a buffer {self.name} of sizes {sizes}")
        if last > _MOST_SIZE and any(size.ty.dtype.bits < 64 for size in self.shape):
            raise ValueError(f"offsets in the program's buffer {self.name} have more than 32 bits")


class _Walk:
    """A walk over a function, which proves its accesses."""

    def __init__(self, function: Any, values: Mapping[int, Interval]) -> None:
        self._function, self._values = function, values
        stores, calls, blocks = (
            collect_nodes(function.body, kind) for kind in (tirx.BufferStore, Call, SBlock)
        )
        self._written = {hash(store.buffer) for store in stores}
        # A pointer or a part of a buffer may write what another name reads.
        self._has_aliases = any(block.match_buffers for block in blocks) or any(
            getattr(call.op, "name", "") in _POINTERS for call in calls
        )
        self._analyzer = Analyzer()
        self._buffers: dict[int, _Buffer] = {}
        self._scalars: set[int] = set()
        self._lets: set[int] = set()
        self._loads: list[tuple[Any, Any]] = []

    def check(self) -> None:
        for param in self._function.params:
            if isinstance(param.ty, tirx.BufferType):
                for size in param.ty.shape:
                    if isinstance(size, tirx.Var) and hash(size) not in self._scalars:
                        self._define(size)
                        self._bind(size, 0, _MOST_SIZE)
                self._declare(param)
            else:
                self._define(param)
        self._statement(self._function.body)

    def _define(self, var: Any) -> None:
        if hash(var) in self._scalars:  # TVM would let a second loop change it
            raise ValueError(f"the program defines {var.name} twice")
        if not isinstance(var.ty, tvm.ir.PrimType):
            raise ValueError(f"the program keeps an address in {var.name}")
        self._scalars.add(hash(var))

    def _bind(self, var: Any, low: int, high: int) -> None:
        if high - low < 1 << 62:  # wider ranges say nothing: those of 64-bit numbers
            extent = _int64(high - low + 1)
            first = tirx.IntImm(str(var.ty.dtype), low)
            self._analyzer.bind(var, Range.from_min_extent(first, extent))

    def _declare(self, var: Any, strides: Sequence[int] | None = None) -> None:
        ty = var.ty
        if hash(var) in self._buffers:
            raise ValueError(f"the program declares the buffer {var.name} twice")
        places = [place for place in (*ty.strides, ty.elem_offset) if place is not None]
        self._scalars |= {hash(place) for place in places if isinstance(place, tirx.Var)}
        numbers = [int(place) for place in places if not isinstance(place, tirx.Var)]
        if ty.allocated_addr or ty.layout is not None or not set(numbers) <= {0, 1}:
            raise ValueError(f"the program places the buffer {var.name} in memory")
        self._buffers[hash(var)] = _Buffer(var, strides)

    def _statement(self, node: Any) -> None:
        match node:
            case tirx.SeqStmt():
                for statement in node.seq:
                    self._statement(statement)
            case tirx.AllocBuffer():
                self._declare(node.buffer)
            case tirx.Bind():
                self._visit(node.value)
                self._define(node.var)
                if _is_whole(node.value.ty.dtype):
                    self._analyzer.bind(node.var, self._number(node.value))
            case tirx.For() if node.step is None or int(node.step) == 1:
                self._visit(node.min, node.extent)
                low, extent = self._number(node.min), self._number(node.extent)
                if self._limits(low + extent)[1] > _limits_of(node.loop_var.ty.dtype)[1]:
                    raise ValueError(f"the loop over {node.loop_var.name} leaves the range of its type")
                with ExitStack() as facts:
                    self._range(facts, node.loop_var, low, extent)
                    self._statement(node.body)
            case tirx.While():
                self._visit(node.condition)
                self._statement(node.body)
            case tirx.IfThenElse():
                self._visit(node.condition)
                condition = self._condition(node.condition)
                for statement in self._cases(condition, node.then_case, node.else_case):
                    if statement is not None:
                        self._statement(statement)
            case tirx.BufferStore():
                self._visit(node.value)
                self._access("writes", node.buffer, node.indices, node.value.ty.dtype)
            case tirx.Evaluate():
                self._visit(node.value)
            case tirx.AttrStmt():
                self._statement(node.body)
            case SBlockRealize():
                self._block(node)
            case _:
                raise ValueError(f"the program has a {type(node).__name__}")

    def _range(self, facts: ExitStack, var: Any, low: Any, extent: Any) -> None:
        """Define a variable that has `extent` values from `low` on."""
        self._define(var)
        self._analyzer.bind(var, Range.from_min_extent(low, extent))
        if not isinstance(extent, tirx.IntImm):
            fact = tirx.And(var >= low, var < low + extent)
            facts.enter_context(self._analyzer.constraint_scope(fact))

    def _cases(self, condition: Any, *branches: Any) -> Iterator[Any]:
        """Yield the first branch while a condition holds, and the second while it does not."""
        for branch, fact in zip(branches, (condition, tirx.Not(condition)), strict=True):
            with self._analyzer.constraint_scope(fact):
                yield branch

    def _condition(self, node: Any) -> Any:
        try:
            return self._number(node)
        except OutOfBounds:  # nothing follows from it
            return self._any("bool")

    def _block(self, realize: Any) -> None:
        block = realize.block
        self._visit(realize.predicate, *realize.iter_values)
        with ExitStack() as facts:
            condition = self._condition(realize.predicate)
            facts.enter_context(self._analyzer.constraint_scope(condition))
            for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
                low, extent = self._number(axis.dom.min), self._number(axis.dom.extent)
                if not self._is_within(self._number(value) - low, extent):
                    raise OutOfBounds(f"{axis.var.name} of the block {block.name_hint} leaves its domain")
                self._range(facts, axis.var, low, extent)
            for buffer in block.alloc_buffers:
                self._declare(buffer)
            for match_buffer in block.match_buffers:
                self._alias(match_buffer.buffer, match_buffer.source)
            for statement in (block.init, block.body):
                if statement is not None:
                    self._statement(statement)

    def _alias(self, var: Any, region: Any) -> None:
        """Declare a buffer that is a part of another, with the strides of that buffer."""
        source, sizes = self._buffer(region.source), [int(axis.extent) for axis in region.region]
        dropped_axes, shape = len(sizes) - len(var.ty.shape), [int(size) for size in var.ty.shape]
        is_same_type = var.ty.dtype.dtype == source.dtype and source.bytes
        if sizes != [1] * dropped_axes + shape or not is_same_type:
            raise ValueError(f"the program's buffer {var.name} differs from its part of {source.name}")
        for axis, size in zip(region.region, source.shape, strict=True):
            self._visit(axis.min)
            if not self._is_within(self._number(axis.min), size - axis.extent + 1):
                raise OutOfBounds(f"the program's buffer {var.name} leaves {source.name}")
        self._declare(var, strides := source.strides[dropped_axes:])
        for declared, stride in zip(var.ty.strides, strides, strict=False):
            if isinstance(declared, tirx.Var):
                self._bind(declared, stride, stride)
            elif int(declared) != stride:
                raise ValueError(f"the program's buffer {var.name} has other strides than {source.name}")

    def _buffer(self, var: Any) -> _Buffer:
        if hash(var) not in self._buffers:
            raise ValueError(f"the program uses the buffer {var.name}, which it does not declare")
        return self._buffers[hash(var)]

    def _access(self, verb: str, var: Any, indices: Any, dtype: Any) -> None:
        """Check an access of numbers of type `dtype`."""
        buffer = self._buffer(var)
        self._visit(*indices)
        if tirx.BufferLoad(var, indices).ty.dtype != dtype:
            raise ValueError(f"the program {verb} {dtype} in {buffer.name}, which has {buffer.dtype}")
        for index, size in zip(indices, buffer.shape, strict=True):
            if not _is_whole(index.ty.dtype) or not self._is_within(self._number(index), size):
                if self._goes_on_in_next_row(buffer, indices):
                    return
                place = f"{buffer.name}[{', '.join(map(str, indices))[:_QUOTED]}]"
                raise OutOfBounds(f"the program {verb} {place}, which has {size} elements")

    def _goes_on_in_next_row(self, buffer: _Buffer, indices: Any) -> bool:
        """Return whether a vector's indices that leave their dimension stay in a buffer
        without gaps: TVM's intrinsics read tiles so."""
        types = [index.ty.dtype for index in indices]
        if not buffer.bytes or prod(map(int, buffer.shape)) * buffer.width != buffer.bytes:
            return False
        if all(ty.lanes == 1 for ty in types) or not all(map(_is_whole, types)):
            return False
        offset = sum(self._offsets(indices, buffer.strides), _int64(0))
        return self._is_within(offset, _int64(buffer.bytes // buffer.width))

    def _offsets(self, indices: Iterable[Any], strides: Iterable[int]) -> Iterator[Any]:
        for index, stride in zip(indices, strides, strict=True):
            yield tirx.Cast("int64", self._number(index)) * _int64(stride)

    def _is_within(self, number: Any, size: Any) -> bool:
        """Return whether a number is proved to be at least 0 and below `size`."""
        low, high = self._limits(number)
        if isinstance(size, tirx.IntImm) and low >= 0 and high < int(size):
            return True
        bounds = number >= 0, number < size
        strength = ProofStrength.SYMBOLIC_BOUND
        return all(self._analyzer.can_prove(bound, strength) for bound in bounds)

    def _limits(self, number: Any) -> Interval:
        bound = self._analyzer.const_int_bound(number)
        low, high = int(bound.min_value), int(bound.max_value)
        low = low if low > bound.NEG_INF else -_INFINITE
        return low, (high if high < bound.POS_INF else _INFINITE)

    def _fits(self, number: Any, dtype: Any) -> bool:
        (low, high), limits = self._limits(number), _limits_of(dtype)
        return limits[0] <= low and high <= limits[1]

    def _visit(self, *nodes: Any) -> None:
        """Check the types and accesses of expressions."""
        for node in nodes:
            match node:
                case tirx.IntImm():
                    tirx.IntImm(str(node.ty.dtype), int(node))  # raises if the type lacks it
                case tirx.FloatImm():
                    pass
                case tirx.Var():
                    if hash(node) not in self._scalars:
                        raise ValueError(f"the program uses {node.name}, which it does not define")
                case TensorLoad():
                    self._access("reads", node.source, node.indices, node.ty.dtype)
                case Call():
                    self._call(node)
                case tirx.Let():
                    self._visit(node.value)
                    if hash(node) not in self._lets:  # an expression may be read in several places
                        self._define(node.var)
                        self._lets.add(hash(node))
                    self._visit(node.body)
                case tirx.Cast():
                    self._visit(node.value)
                    tirx.Cast(str(node.ty.dtype), node.value)  # raises for other lanes
                case _ if type(node) in _ARGUMENTS:
                    arguments = [getattr(node, name) for name in _ARGUMENTS[type(node)]]
                    self._visit(*arguments)
                    copy = type(node)(*arguments)
                    if not tvm_ffi.structural_equal(copy, node) or copy.ty != node.ty:
                        raise ValueError(f"the program takes {copy.ty.dtype} for {node.ty.dtype}")
                case _:
                    raise ValueError(f"the program has a {type(node).__name__}")

    def _call(self, call: Any) -> None:
        name, arguments = call.op.name, list(call.args)
        if name in _EXTERN:
            self._extern(call)
        elif name in _REFUSED:
            raise ValueError(f"the program calls {name} where no bounds are known")
        elif name == _IF:
            condition, *branches = arguments
            self._visit(condition)
            for branch in self._cases(self._condition(condition), *branches):
                self._visit(branch)
        else:
            self._visit(*arguments)
            types = [value.ty.dtype for value in (call, *arguments)]
            sizes = [ty.lanes * (ty.bits if name == _REINTERPRET else 1) for ty in types]
            if arguments and sizes[0] != max(sizes[1:]):
                raise ValueError(f"the program takes another number of lanes from {name}")

    def _extern(self, call: Any) -> None:
        """Check a call of one of our LLVM functions: each address has as many bytes as it takes."""
        function, *arguments = call.args
        name, pointers, numbers, types = str(function.value), [], [], [str(call.ty.dtype) or "void"]
        for argument in arguments:
            if isinstance(argument, Call) and argument.op.name in _POINTERS:
                pointers.append(self._address(argument))
                types.append("ptr")
            else:
                self._visit(argument)
                numbers.append(argument)
                types.append(str(argument.ty.dtype))
        signature, sizes = _describe_extern(name, map(self._count, numbers), call.ty.dtype.lanes)
        if " ".join(types) != signature:
            raise ValueError(f"the program calls {name} with {types}")
        for (buffer, start), size in zip(pointers, sizes, strict=True):
            if not self._is_within(start + size, _int64(buffer.bytes + 1)):
                raise OutOfBounds(f"{name} leaves the buffer {buffer.name}, which has {buffer.bytes} bytes")

    def _count(self, node: Any) -> Any:
        number = tirx.Cast("int64", self._number(node))
        if not self._is_within(number, _int64(_MOST_COUNT)):
            raise OutOfBounds(f"the program calls a function with {str(node)[:_QUOTED]}")
        return number

    def _address(self, pointer: Any) -> tuple[_Buffer, Any]:
        """Return the buffer of an address, and the number of bytes before it."""
        if pointer.op.name == _ADDRESS:
            (load,) = pointer.args
            self._access("takes", load.source, load.indices, load.ty.dtype)
            buffer = self._buffer(load.source)
            indices, strides = load.indices, buffer.strides
        else:
            kind, data, offset, *_ = pointer.args
            (var,) = data.args
            buffer, indices, strides = self._buffer(var), [offset], [1]
            self._visit(offset)
            if kind.ty.dtype.bits != 8 * buffer.width or not self._is_within(
                self._number(offset), _int64(buffer.bytes)
            ):
                raise ValueError(f"the program takes another address in {buffer.name}")
        widths = [stride * buffer.width for stride in strides]
        return buffer, sum(self._offsets(indices, widths), _int64(0))

    def _number(self, node: Any) -> Any:
        """Return a scalar expression for a whole number, a condition, or any lane of a vector."""
        dtype = node.ty.dtype.with_lanes(1)
        match node:
            case tirx.IntImm():
                return node
            case tirx.Var() if node.ty.dtype.lanes == 1 and _is_exact(dtype):
                return node
            case tirx.Ramp():
                lane = self._any(dtype, (0, int(node.lanes) - 1))
                step = tirx.Mul(self._number(node.stride), lane)
                return self._fit(tirx.Add(self._number(node.base), step))
            case TensorLoad() if not self._has_aliases and hash(node.source) not in self._written:
                for load, var in self._loads:
                    if tvm_ffi.structural_equal(load, node):
                        return var
                var = self._any(dtype, self._values.get(hash(node.source)))
                self._loads.append((node, var))
                return var
            case TensorLoad() if hash(node.source) in self._values:  # a copy, whose elements change
                return self._any(dtype, self._values[hash(node.source)])
            case tirx.Cast() if _is_whole(dtype) and _is_whole(node.value.ty.dtype):
                if self._fits(number := self._number(node.value), dtype):
                    return tirx.Cast(dtype, number)
            case tirx.Cast() if _is_whole(dtype):
                least, most = self._real_limits(node.value)
                if isfinite(least) and isfinite(most):  # a place between elements
                    spread = 1 + int(max(abs(least), abs(most)) * _LARGEST_ROUNDING)
                    return self._any(dtype, (floor(least) - spread, ceil(most) + spread))
            case Call() if node.op.name == _IF:
                return self._choice(*node.args)
            case tirx.Let():
                return self._number(node.body)
            case tirx.Select():
                return self._choice(node.condition, node.true_value, node.false_value)
            case _ if isinstance(node, _CHOICES) and _is_exact(node.a.ty.dtype):
                return type(node)(self._number(node.a), self._number(node.b))
            case _ if isinstance(node, _ARITHMETIC) and _is_whole(dtype):
                return self._fit(type(node)(self._number(node.a), self._number(node.b)))
        return self._any(dtype)

    def _real_limits(self, node: Any) -> tuple[float, float]:
        """Return the smallest and the largest real number that an expression may be, but for rounding."""
        match node:
            case tirx.FloatImm():
                return node.value, node.value
            case tirx.Cast() if _is_whole(node.value.ty.dtype):
                whole = self._limits(self._number(node.value))
                return float(whole[0]), float(whole[1])
            case tirx.Cast():
                return self._real_limits(node.value)
            case Call() if node.op.name in _WHOLE_NUMBERS:
                low, high = self._real_limits(node.args[0])
                return low - 1, high + 1
            case tirx.Add() | tirx.Sub() | tirx.Mul():
                operate = _REAL_ARITHMETIC[type(node)]
                ends = product(self._real_limits(node.a), self._real_limits(node.b))
                numbers = [operate(*pair) for pair in ends]
                if all(map(isfinite, numbers)):
                    return min(numbers), max(numbers)
        return -inf, inf

    def _choice(self, condition: Any, *branches: Any) -> Any:
        test = self._condition(condition)
        return tirx.Select(test, *map(self._number, self._cases(test, *branches)))

    def _fit(self, number: Any) -> Any:
        """Return a number that stays in the range of its type. Refuse others: TVM drops a
        clamp that would be idle if nothing wrapped around."""
        is_sum = isinstance(number, _SUMS)
        if self._fits(number, number.ty.dtype) if is_sum else self._limits(number.b)[0] > 0:
            return number
        words = f"the program computes {str(number)[:_QUOTED]}"
        raise OutOfBounds(f"{words}, which may leave the range of {number.ty.dtype}")

    def _any(self, dtype: Any, limits: Interval | None = None) -> Any:
        var = tirx.Var("any", str(dtype))
        if _is_whole(dtype):
            self._bind(var, *(limits or _limits_of(dtype)))
        return var


def _describe_extern(name: str, numbers: Iterator[Any], lanes: int) -> tuple[str, Sequence[Any]]:
    """Return the types of the result and the arguments of one of our LLVM functions, and how many
    bytes it takes from each address. `numbers` are its other arguments, `lanes` those of the result."""
    if name in _SUMS_OF_DOTS:  # takes vectors alone
        vector = f"{_SUMS_OF_DOTS[name]}x{lanes}"
        return f"{vector} {vector} int32x{lanes} int32x{lanes}", []
    if match := _SPLIT.fullmatch(name):
        return "void ptr ptr ptr ptr", [4 * int(match[1]), 2 * int(match[1]), 4, 4]
    if match := _DOT.fullmatch(name):
        bits, block, lanes = map(int, match.groups())
        return f"int32x{lanes} int32x{lanes} ptr ptr", [block * bits * lanes // 8, 2 * block]
    if name == tile_instruction.ALLOWED:
        return "int32", []
    if name not in _TILES:
        raise ValueError(f"the program calls {name}, whose accesses are not known")
    row, place, places, steps, wide, result_row, *rows = numbers
    places, steps, *rows = (tirx.Max(count, _int64(1)) for count in (places, steps, *rows))
    data = [(places - 1) * place + steps * wide + (count - 1) * row for count in rows]
    results = [(count - 1) * result_row + 2 * _TILE_ROW for count in rows]
    weights = places * steps * wide * tile_instruction.ROWS
    types = ["void ptr ptr", *["int64"] * 5, *["ptr"] * 4, "int64 int32 int32"]
    return " ".join(types), [*data, weights, weights, *results]


def _is_whole(dtype: Any) -> bool:
    return str(dtype).startswith(("int", "uint"))


def _is_exact(dtype: Any) -> bool:
    return str(dtype).startswith(("int", "uint", "bool"))


def _int64(value: int) -> Any:
    return tirx.IntImm("int64", value)


def _limits_of(dtype: Any) -> Interval:
    """Return the smallest and largest number of an integer type."""
    if dtype == "bool":
        return 0, 1
    if str(dtype).startswith("int"):
        return -(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1
    return 0, (1 << dtype.bits) - 1
