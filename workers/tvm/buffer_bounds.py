"""Prove that tensor functions of other people access their buffers only inside of them.

TVM compiles an access without a check, so a wrong index reads or writes memory of the process.
`check_bounds` walks a function and proves each index by TVM's arithmetic, from the extents of
loops, the domains of blocks and the conditions around it. A number that arithmetic does not
follow (of a load, a call, or a sum that may overflow) stands for every number of its type, so
a program that clamps such a number passes. Pointers go only to functions of our graph passes.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from math import prod
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, Range, TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer, ProofStrength

from mallorn.core.errors import InvalidModel
from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.graphc.quant import tile_instructions
from mallorn.workers.tvm.allowed_programs import OPS, describe_refusal
from mallorn.workers.tvm.program_blocks import blocks_of, index_bounds

Interval = tuple[int, int]  # the smallest and the largest value
_MOST_BYTES: Final = 1 << 40  # of a buffer
_MOST_SIZE: Final = (1 << 31) - 1  # of a dimension that is known only when the function is called
_INFINITE: Final = 1 << 70  # beyond every integer type
_QUOTED: Final = 80  # characters of an index in an error
_WALKS: Final = 4  # in which values of stored indices become stable
_SUMS: Final = (tirx.Add, tirx.Sub, tirx.Mul)
_QUOTIENTS: Final = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
_COMPARISONS: Final = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_BITS: Final = (tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift)
_PAIRS: Final = (*_SUMS, *_QUOTIENTS, *_COMPARISONS, *_BITS, tirx.Max, tirx.Min, tirx.And, tirx.Or)
_IF, _LIKELY = "prim.if_then_else", "prim.likely"
_ADDRESS, _ATOMIC, _REINTERPRET = "tirx.address_of", "tirx.atomic_add", "tirx.reinterpret"
_PACKED: Final = "tirx.tvm_call_packed"
_WRAPPED: Final = "wrapped"  # name of a number that may have wrapped around
_POINTERS: Final = frozenset({_ADDRESS, "tirx.tvm_access_ptr", "tirx.buffer_data"})
_EXTERN: Final = frozenset({"tirx.call_extern", "tirx.call_pure_extern"})
_SPLIT: Final = re.compile(r"mallorn_split_(\d+)_\d+", re.ASCII)
_DOT: Final = re.compile(r"mallorn_block_(\d+)_(\d+)_(\d+)_\d+", re.ASCII)
_TILE_ROW: Final = 64  # bytes of a row of sums
_TILES: Final = frozenset(instruction.function for instruction in tile_instructions.BY_TYPE.values())


class OutOfBounds(ValueError):
    """An access of a program may lie outside of its buffer."""


def check_bounds(mod: Any) -> None:
    """Raise ValueError, with the buffer and the index, unless all accesses of a program lie in bounds.
    Index tensors have the values that candidates are measured with."""
    for function in mod.functions.values():
        names = {hash(param) for param in function.params}
        known = (
            index_bounds(blocks_of(mod))
            if any("int" in str(getattr(param.ty, "dtype", "")) for param in function.params)
            else {}
        )
        check_function(
            function, {name: (low, high - 1) for name, (low, high) in known.items() if name in names}
        )


def check_schedule(mod: Any) -> None:
    """Check a program that a trace was applied to. Threads of GPUs and instructions that replace
    blocks are not followed: such a program is not proved, and runs on a device alone."""
    loops, calls = (collect_nodes(mod["main"], kind) for kind in (tirx.For, Call))
    has_threads = any(loop.kind == tirx.ForKind.THREAD_BINDING for loop in loops)
    if not has_threads and all(call.op.name in OPS for call in calls):
        check_bounds(mod)


def check_functions(mod: Any) -> None:
    """Raise InvalidModel unless the tensor functions of a Relax module stay in their buffers, whatever their
    index tensors hold."""
    for var, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            try:
                check_function(function, {})
            except (ValueError, RecursionError) as error:
                message = f"the module of TVM is refused: {describe_refusal(error)} ({var.name_hint})"
                raise InvalidModel(
                    message, hint="bound its indices by T.max and T.min   (docs/torch.md)"
                ) from None


def check_function(function: Any, argument_values: Mapping[int, Interval]) -> None:
    """Check a tensor function likewise. `argument_values` has the values of integer arguments by
    the hash of their buffers; others may have any value of their type."""
    written = _find_written_buffers(function)
    values = {name: bounds for name, bounds in argument_values.items() if name not in written}
    try:
        try:
            _Walk(function, written, values).check()
        except OutOfBounds:
            # The function may compute indices itself: find which values its buffers get, and prove again.
            stored: dict[int, Interval] = {}
            for _ in range(_WALKS):
                walk = _Walk(function, written, values, stored, proves=False)
                walk.check()
                if walk.stored == stored:
                    break
                stored = walk.stored
            else:
                raise
            _Walk(function, written, values, stored).check()
    except (AttributeError, TypeError, tvm.error.InternalError):
        raise ValueError("the program has another form than TVM writes") from None


def _find_written_buffers(function: Any) -> set[int]:
    """Return hashes of the buffers that a function stores to or takes pointers of."""
    written = {hash(store.buffer) for store in collect_nodes(function.body, tirx.BufferStore)}
    for call in collect_nodes(function.body, Call):
        if isinstance(call.op, Op) and call.op.name in _POINTERS:
            written |= {hash(var) for var in collect_nodes(call, tirx.Var)}
    for realize in collect_nodes(function.body, SBlockRealize):
        for match in realize.block.match_buffers:
            written |= {hash(match.buffer), hash(match.source.source)}
    return written


class _Buffer:
    """A declared buffer; strides are of its elements in memory."""

    def __init__(self, var: Any, strides: Sequence[int] | None = None) -> None:
        self.name, self.shape, self.dtype = str(var.name), list(var.ty.shape), var.ty.dtype.dtype
        sizes = [int(size) if isinstance(size, tirx.IntImm) else _MOST_SIZE for size in self.shape]
        self.is_static = all(isinstance(size, tirx.IntImm) for size in self.shape)
        self.strides = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))] if strides is None else strides
        self.width = -(-self.dtype.bits * self.dtype.lanes // 8)  # bytes of an element
        last = sum((size - 1) * stride for size, stride in zip(sizes, self.strides, strict=True))
        self.bytes = 0 if 0 in sizes else (last + 1) * self.width
        if not self.is_static:
            return
        if min(sizes, default=0) < 0 or self.bytes > _MOST_BYTES:
            raise ValueError(f"the program has a buffer {self.name} of sizes {sizes}")
        if last > _MOST_SIZE and any(size.ty.dtype.bits < 64 for size in self.shape):
            raise ValueError(f"offsets in the program's buffer {self.name} have more than 32 bits")


class _Walk:
    """One walk over a function, which proves accesses or only finds which values it stores."""

    def __init__(
        self,
        function: Any,
        written: set[int],
        values: Mapping[int, Interval],
        found: Mapping[int, Interval] | None = None,
        proves: bool = True,
    ) -> None:
        self.stored: dict[int, Interval] = {}  # values by the hash of a written buffer
        self._function, self._written, self._proves = function, written, proves
        self._values, self._found = values, found
        self._parameters = {hash(param) for param in function.params}
        self._analyzer = Analyzer()
        self._buffers: dict[int, _Buffer] = {}
        self._scalars: set[int] = set()
        self._loads: dict[int, list[tuple[Any, Any]]] = {}
        self._trusts_found = False

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
        dtype = str(var.ty.dtype)
        if high - low < 1 << 62:  # wider ranges are those of 64-bit numbers, and no knowledge
            extent = tirx.IntImm("int64", high - low + 1)
            self._analyzer.bind(var, Range.from_min_extent(tirx.IntImm(dtype, low), extent))

    def _declare(self, var: Any, strides: Sequence[int] | None = None) -> None:
        ty = var.ty
        if hash(var) in self._buffers or not isinstance(ty, tirx.BufferType):
            raise ValueError(f"the program declares the buffer {var.name} twice")
        for place in (*ty.strides, ty.elem_offset):
            if isinstance(place, tirx.Var):
                self._scalars.add(hash(place))
            elif place is not None and not (isinstance(place, tirx.IntImm) and int(place) in (0, 1)):
                raise ValueError(f"the program places the buffer {var.name} in memory")
        if ty.allocated_addr or ty.layout is not None:
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
                self._define_value(node.var, node.value)
            case tirx.For():
                if node.step is not None and int(node.step) != 1:
                    raise ValueError("the program has a loop with steps")
                self._visit(node.min, node.extent)
                low, extent = self._number(node.min), self._number(node.extent)
                self._define(node.loop_var)
                if self._limits(low + extent)[1] > _limits_of(node.loop_var.ty.dtype)[1]:
                    raise ValueError(
                        f"the loop over {node.loop_var.name} has more steps than its type has numbers"
                    )
                with self._ranging(node.loop_var, low, extent):
                    self._statement(node.body)
            case tirx.While():
                self._visit(node.condition)
                self._statement(node.body)
            case tirx.IfThenElse():
                self._visit(node.condition)
                condition = self._number(node.condition)
                with self._analyzer.constraint_scope(condition):
                    self._statement(node.then_case)
                if node.else_case is not None:
                    with self._analyzer.constraint_scope(tirx.Not(condition)):
                        self._statement(node.else_case)
            case tirx.BufferStore():
                self._visit(node.value)
                self._access("writes", node.buffer, node.indices, node.value.ty.dtype)
                if not self._proves and (interval := self._integers(node.value)):
                    low, high = self.stored.get(hash(node.buffer), interval)
                    self.stored[hash(node.buffer)] = min(low, interval[0]), max(high, interval[1])
            case tirx.Evaluate():
                self._visit(node.value)
            case tirx.AttrStmt():
                self._statement(node.body)
            case SBlockRealize():
                self._block(node)
            case _:
                raise ValueError(f"the program has a {type(node).__name__}")

    def _ranging(self, var: Any, low: Any, extent: Any) -> Any:
        """Return a context in which a variable has `extent` values from `low` on."""
        self._analyzer.bind(var, Range.from_min_extent(low, extent))
        if isinstance(extent, tirx.IntImm):
            return nullcontext()
        return self._analyzer.constraint_scope(tirx.And(var >= low, var < low + extent))

    def _define_value(self, var: Any, value: Any) -> None:
        self._visit(value)
        self._define(var)
        if _is_whole(value.ty.dtype):
            self._analyzer.bind(var, self._number(value))

    def _block(self, realize: Any) -> None:
        block = realize.block
        self._visit(realize.predicate, *realize.iter_values)
        with ExitStack() as facts:
            facts.enter_context(self._analyzer.constraint_scope(self._number(realize.predicate)))
            for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
                low, extent = self._number(axis.dom.min), self._number(axis.dom.extent)
                if self._proves and not self._is_within(self._number(value) - low, extent):
                    raise OutOfBounds(f"{axis.var.name} of the block {block.name_hint} leaves its domain")
                self._define(axis.var)
                facts.enter_context(self._ranging(axis.var, low, extent))
            for buffer in block.alloc_buffers:
                self._declare(buffer)
            for match_buffer in block.match_buffers:
                self._alias(match_buffer.buffer, match_buffer.source)
            for statement in (block.init, block.body):
                if statement is not None:
                    self._statement(statement)

    def _alias(self, var: Any, region: Any) -> None:
        """Declare a buffer that is a part of another."""
        source, ranges = self._buffer(region.source), list(region.region)
        sizes = [int(axis.extent) for axis in ranges]
        skipped = len(sizes) - len(var.ty.shape)
        if skipped < 0 or sizes != [1] * skipped + [int(size) for size in var.ty.shape]:
            raise ValueError(
                f"the program's buffer {var.name} has other sizes than its part of {source.name}"
            )
        if var.ty.dtype.dtype != source.dtype:
            raise ValueError(f"the program's buffer {var.name} has another type than {source.name}")
        for axis, size in zip(ranges, source.shape, strict=True):
            self._visit(axis.min)
            if self._proves and not self._is_within(self._number(axis.min), size - axis.extent + 1):
                raise OutOfBounds(f"the program's buffer {var.name} leaves {source.name}")
        self._declare(var, strides := source.strides[skipped:])
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
        if len(indices) != len(buffer.shape):
            raise ValueError(f"the program {verb} {buffer.name} with {len(indices)} indices")
        self._visit(*indices)
        if not all(_is_whole(index.ty.dtype) for index in indices):
            raise ValueError(f"the program {verb} {buffer.name} by an index that is no whole number")
        lanes = prod(index.ty.dtype.lanes for index in indices) * buffer.dtype.lanes
        if (dtype.type_code, dtype.bits, dtype.lanes) != (buffer.dtype.type_code, buffer.dtype.bits, lanes):
            raise ValueError(f"the program {verb} {dtype} in {buffer.name}, which has {buffer.dtype}")
        if not self._proves:
            return
        # Where nothing was stored, a buffer holds any number: no write or condition relies on what was.
        self._trusts_found = verb == "reads"
        for axis, (index, size) in enumerate(zip(indices, buffer.shape, strict=True)):
            if not self._is_within(self._number(index), size):
                place = ", ".join(
                    ":" if other != axis else str(index)[:_QUOTED] for other in range(len(indices))
                )
                raise OutOfBounds(f"the program {verb} {buffer.name}[{place}], which has {size} elements")
        self._trusts_found = False

    def _is_within(self, number: Any, size: Any) -> bool:
        """Return whether a number is proved to be at least 0 and below `size`."""
        low, high = self._limits(number)
        if isinstance(size, tirx.IntImm) and low >= 0 and high < int(size):
            return True
        strengths = ProofStrength.DEFAULT, ProofStrength.SYMBOLIC_BOUND
        return all(
            any(self._analyzer.can_prove(bound, strength) for strength in strengths)
            for bound in (number >= 0, number < size)
        )

    def _limits(self, number: Any) -> Interval:
        bound = self._analyzer.const_int_bound(number)
        low, high = int(bound.min_value), int(bound.max_value)
        return (low if low > bound.NEG_INF else -_INFINITE), (high if high < bound.POS_INF else _INFINITE)

    def _integers(self, value: Any) -> Interval | None:
        return self._limits(self._number(value)) if _is_whole(value.ty.dtype) else None

    def _visit(self, *values: Any) -> None:
        """Check the types and accesses of expressions."""
        for value in values:
            self._check_expression(value)

    def _check_expression(self, node: Any) -> None:
        parts: Sequence[Any] = ()
        match node:
            case tirx.IntImm():
                low, high = _limits_of(node.ty.dtype)
                if not low <= int(node) <= high:
                    raise ValueError(f"the program has {int(node)} as {node.ty.dtype}")
            case tirx.FloatImm():
                pass
            case tirx.Var():
                if hash(node) not in self._scalars:
                    raise ValueError(f"the program uses {node.name}, which it does not define")
            case TensorLoad():
                self._access("reads", node.source, node.indices, node.ty.dtype)
            case tirx.Let():
                self._define_value(node.var, node.value)
                parts = [node.body]
            case tirx.Select():
                parts = [node.condition, node.true_value, node.false_value]
            case tirx.Ramp():
                parts = [node.base, node.stride]
            case tirx.Broadcast() | tirx.Cast():
                parts = [node.value]
            case tirx.Not() | tirx.BitwiseNot():
                parts = [node.a]
            case tirx.Shuffle():
                parts = [*node.vectors, *node.indices]
            case Call():
                self._call(node)
            case _ if isinstance(node, _PAIRS):
                parts = [node.a, node.b]
            case _:
                raise ValueError(f"the program has a {type(node).__name__}")
        self._visit(*parts)
        if parts and str(node.ty.dtype) != _type_of(node):
            raise ValueError(f"the program takes {_type_of(node)} for {node.ty.dtype}")

    def _call(self, call: Any) -> None:
        name, arguments = call.op.name, list(call.args)
        if name in _EXTERN:
            self._extern(call)
        elif name == _IF:
            condition, *branches = arguments
            self._visit(condition)
            chosen = self._number(condition)
            for branch, constraint in zip(branches, (chosen, tirx.Not(chosen)), strict=True):
                with self._analyzer.constraint_scope(constraint):
                    self._visit(branch)
        elif name == _ATOMIC:
            address, value = arguments
            (load,) = address.args
            self._visit(value)
            self._access("writes", load.source, load.indices, load.ty.dtype)
        elif name in _POINTERS or name == _PACKED:
            raise ValueError(f"the program calls {name} where no bounds are known")
        else:
            self._visit(*arguments)
            if name == _REINTERPRET:
                bits = [value.ty.dtype.bits * value.ty.dtype.lanes for value in (call, *arguments)]
            else:
                bits = [value.ty.dtype.lanes for value in (call, *arguments)]
            if arguments and bits[0] != max(bits[1:]):
                raise ValueError(f"the program takes another number of lanes from {name}")

    def _extern(self, call: Any) -> None:
        """Check a call of one of our LLVM functions: each address has as many bytes as it takes."""
        function, *arguments = call.args
        name = str(function.value)
        pointers, numbers = [], []
        for argument in arguments:
            if isinstance(argument, Call) and argument.op.name in _POINTERS:
                pointers.append(self._address(argument))
            else:
                self._visit(argument)
                numbers.append(argument)
        sizes: list[Any]
        if found := _SPLIT.fullmatch(name):
            block = int(found[1])
            sizes = [4 * block, 2 * block, 4, 4]
        elif found := _DOT.fullmatch(name):
            bits, block, lanes = map(int, found.groups())
            sizes = [block * bits * lanes // 8, 2 * block]
            if {str(value.ty.dtype) for value in (call, *numbers)} != {f"int32x{lanes}"}:
                raise ValueError(f"the program takes other vectors from {name}")
        elif name in _TILES:
            row, place, places, steps, wide, result_row, *rows = (
                tirx.Cast("int64", self._number(number)) for number in numbers
            )
            data = [(places - 1) * place + (steps - 1) * wide + (count - 1) * row + wide for count in rows]
            results = [(count - 1) * result_row + 2 * _TILE_ROW for count in rows]
            weights = places * steps * wide * tile_instructions.ROWS
            sizes = [*data, weights, weights, *results]
        elif name == tile_instructions.ALLOWED:
            sizes = []
        else:
            raise ValueError(f"the program calls {name}, whose accesses are not known")
        for (buffer, start), size in zip(pointers, sizes, strict=True):
            if self._proves and not self._is_within(start + size, tirx.IntImm("int64", buffer.bytes + 1)):
                raise OutOfBounds(f"{name} leaves the buffer {buffer.name}, which has {buffer.bytes} bytes")

    def _address(self, pointer: Any) -> tuple[_Buffer, Any]:
        """Return the buffer of an address, and the number of bytes before it."""
        indices: Sequence[Any] = ()
        if pointer.op.name == _ADDRESS:
            (load,) = pointer.args
            buffer, indices = self._buffer(load.source), load.indices
            self._access("takes", load.source, indices, load.ty.dtype)
            elements = zip(indices, buffer.strides, strict=True)
        else:
            kind, data, offset, *_ = pointer.args
            (var,) = data.args
            buffer = self._buffer(var)
            self._visit(offset)
            if kind.ty.dtype.bits != 8 * buffer.width or not self._is_within(
                self._number(offset), _int64(1 << 40)
            ):
                raise ValueError(f"the program takes another address in {buffer.name}")
            elements = zip([offset], [1], strict=True)
        start: Any = _int64(0)
        for index, stride in elements:
            start = start + tirx.Cast("int64", self._number(index)) * _int64(stride * buffer.width)
        if not buffer.is_static:
            raise ValueError(f"the program takes an address in {buffer.name}, whose sizes are not known")
        return buffer, start

    def _number(self, node: Any) -> Any:
        """Return a scalar expression for a whole number or a condition, or for any lane of a vector."""
        dtype = node.ty.dtype.with_lanes(1)
        match node:
            case tirx.IntImm():
                return node
            case tirx.Var() if node.ty.dtype.lanes == 1 and (_is_whole(dtype) or dtype == "bool"):
                return node
            case tirx.Ramp():
                lane = self._any(dtype, (0, int(node.lanes) - 1))
                return self._fit(self._number(node.base) + self._number(node.stride) * lane)
            case tirx.Broadcast():
                return self._number(node.value)
            case tirx.Let():
                return self._number(node.body)
            case tirx.Not():
                return tirx.Not(self._number(node.a))
            case TensorLoad() if _is_whole(dtype):
                return self._loaded(node, dtype)
            case tirx.Cast() if _is_whole(dtype) and node.value.ty.dtype.with_lanes(1) == "bool":
                return tirx.Select(self._number(node.value), tirx.IntImm(dtype, 1), tirx.IntImm(dtype, 0))
            case tirx.Cast() if _is_whole(dtype) and _is_whole(node.value.ty.dtype):
                number = self._number(node.value)
                if _contains(_limits_of(dtype), self._limits(number)):
                    return tirx.Cast(dtype, number)
            case Call() if node.op.name == _LIKELY:
                return self._number(node.args[0])
            case Call() if node.op.name == _IF:
                return self._choice(*node.args)
            case tirx.Select():
                return self._choice(node.condition, node.true_value, node.false_value)
            case tirx.BitwiseAnd() if isinstance(node.b, tirx.IntImm) and int(node.b) >= 0:
                return self._any(dtype, (0, int(node.b)))
            case tirx.RShift() if isinstance(node.b, tirx.IntImm) and 0 <= int(node.b) < dtype.bits - 1:
                return tirx.FloorDiv(self._number(node.a), tirx.IntImm(dtype, 1 << int(node.b)))
            case tirx.LShift() if isinstance(node.b, tirx.IntImm) and 0 <= int(node.b) < dtype.bits - 1:
                return self._fit(self._number(node.a) * tirx.IntImm(dtype, 1 << int(node.b)))
            case tirx.And() | tirx.Or() | tirx.Max() | tirx.Min():
                if _is_whole(dtype) or dtype == "bool":
                    return type(node)(self._number(node.a), self._number(node.b))
            case _ if isinstance(node, _COMPARISONS) and _is_whole(node.a.ty.dtype):
                return type(node)(self._number(node.a), self._number(node.b))
            case _ if isinstance(node, _SUMS) and _is_whole(dtype):
                return self._fit(type(node)(self._number(node.a), self._number(node.b)))
            case _ if isinstance(node, _QUOTIENTS) and _is_whole(dtype):
                number, divisor = self._number(node.a), self._number(node.b)
                if self._limits(divisor)[0] > 0 and not any(
                    v.name == _WRAPPED for v in collect_nodes(number, tirx.Var)
                ):
                    return type(node)(number, divisor)
                self._refuse_wrapped(node)
        return self._any(dtype)

    def _choice(self, condition: Any, value: Any, alternative: Any) -> Any:
        chosen = self._number(condition)
        with self._analyzer.constraint_scope(chosen):
            first = self._number(value)
        with self._analyzer.constraint_scope(tirx.Not(chosen)):
            second = self._number(alternative)
        return tirx.Select(chosen, first, second)

    def _fit(self, number: Any) -> Any:
        """Return a sum or product that stays in the range of its type, or a new variable for a sum of any
        number. Refuse others: TVM drops a clamp that would be idle if nothing wrapped around."""
        (low, high), (least, most) = self._limits(number), _limits_of(number.ty.dtype)
        if isinstance(number, tirx.Add | tirx.Sub):
            (a_low, a_high), (b_low, b_high) = map(self._limits_in_type, (number.a, number.b))
            if isinstance(number, tirx.Sub):
                b_low, b_high = -b_high, -b_low
            low, high = max(low, a_low + b_low), min(high, a_high + b_high)
        if least <= low and high <= most:
            return number
        if isinstance(number, tirx.Mul) or low > least // 2 or high < most // 2:
            self._refuse_wrapped(number)
        return self._any(number.ty.dtype, name=_WRAPPED)

    def _limits_in_type(self, number: Any) -> Interval:
        (low, high), (least, most) = self._limits(number), _limits_of(number.ty.dtype)
        return max(low, least), min(high, most)

    def _refuse_wrapped(self, number: Any) -> None:
        if self._proves:
            text = str(number)[:_QUOTED]
            raise OutOfBounds(f"the program computes {text}, which may leave the range of {number.ty.dtype}")

    def _any(self, dtype: Any, limits: Interval | None = None, name: str = "any") -> Any:
        var = tirx.Var(name, str(dtype))
        if _is_whole(dtype):
            self._bind(var, *(limits or _limits_of(dtype)))
        return var

    def _loaded(self, load: Any, dtype: Any) -> Any:
        name = hash(load.source)
        if name in self._written:
            if self._found is None or not self._trusts_found or name in self._parameters:
                return self._any(dtype)
            return self._any(dtype, self._found.get(name, (0, 0)))
        loads = self._loads.setdefault(name, [])
        for known, var in loads:
            if tvm_ffi.structural_equal(known, load):
                return var
        loads.append((load, var := self._any(dtype, self._values.get(name))))
        return var


def _is_whole(dtype: Any) -> bool:
    return str(dtype).startswith(("int", "uint"))


def _int64(value: int) -> Any:
    return tirx.IntImm("int64", value)


def _limits_of(dtype: Any) -> Interval:
    """Return the smallest and largest number of an integer type."""
    if dtype == "bool":
        return 0, 1
    if str(dtype).startswith("int"):
        return -(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1
    return 0, (1 << dtype.bits) - 1


def _contains(outer: Interval, inner: Interval) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _type_of(node: Any) -> str:
    """Return the type that an expression has by its parts. Raises ValueError if they do not agree."""
    parts: Sequence[Any] = ()
    match node:
        case tirx.Cast():
            return str(node.ty.dtype.with_lanes(node.value.ty.dtype.lanes))
        case tirx.Ramp():
            parts, dtype = (node.base, node.stride), node.base.ty.dtype.with_lanes(int(node.lanes))
        case tirx.Broadcast():
            dtype = node.value.ty.dtype.with_lanes(int(node.lanes) * node.value.ty.dtype.lanes)
        case tirx.Select():
            parts, dtype = (node.true_value, node.false_value), node.true_value.ty.dtype
        case tirx.Let():
            dtype = node.body.ty.dtype
        case tirx.Not() | tirx.BitwiseNot():
            dtype = node.a.ty.dtype
        case tirx.Shuffle():
            dtype = node.vectors[0].ty.dtype.with_lanes(len(node.indices))
        case _:
            parts, dtype = (node.a, node.b), node.a.ty.dtype
            if isinstance(node, _COMPARISONS):
                dtype = tvm_ffi.dtype("bool").with_lanes(dtype.lanes)
    if len({str(part.ty.dtype) for part in parts}) > 1:
        raise ValueError(f"the program combines {' and '.join(str(part.ty.dtype) for part in parts)}")
    return str(dtype)
