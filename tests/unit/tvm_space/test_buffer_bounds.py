"""Accesses of strangers' programs are proved to lie in their buffers, or the program is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import te
from tvm.tirx import IndexMap

from mallorn.core.errors import Unschedulable
from mallorn.graphc.elementwise import vectorizable_math_functions as functions
from mallorn.workers.tvm.programs.buffer_bounds import check_bounds, check_function, check_schedule
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module
from mallorn.workers.tvm.records.tuning_database import BROKEN, apply_trace
from tests.fixtures.hostile import accesses

HEAD = "@T.prim_func(s_tir=True, check_well_formed=False)\n"


def function(
    body: str, parameters: str = 'A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")'
) -> Any:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return tvm.script.from_source(f"{HEAD}def main({parameters}):\n{lines}\n")


def module(body: str, *parameters: str) -> Any:
    return tvm.IRModule({"main": function(body, *parameters)})


#: With `I` for integers that index and `F` for floats.
INDEXED = 'A: T.Buffer((16,), "float32"), I: T.Buffer((8,), "int64"), B: T.Buffer((8,), "float32")'
PROVED = {
    "a loop": "for i in range(16):\n    B[i] = A[i]",
    "a loop that begins later": "for i in range(4, 16):\n    B[i] = A[i - 4]",
    "tiles": "for i, j in T.grid(4, 4):\n    B[i * 4 + j] = A[j * 4 + i]",
    "a condition": "for i in range(20):\n    if i < 16:\n        B[i] = A[i]",
    "the other case of a condition": (
        "for i in range(20):\n    if 16 <= i:\n        B[0] = A[0]\n    else:\n        B[i] = A[i]"
    ),
    "two conditions": (
        "for i, j in T.grid(8, 8):\n    if i * 8 + j < 16 and j < 8:\n        B[i * 8 + j] = A[0]"
    ),
    "places of a resized image": (
        "for i in range(16):\n"
        "    B[i] = A[T.max(T.min("
        "T.Cast('int64', T.floor((T.Cast('float32', i) + 0.5) * 0.5 - 0.5)) + 1, 15), 0)]"
    ),
    "a condition in a value": (
        "for i in range(16):\n    B[i] = T.if_then_else(1 <= i, A[i - 1], T.float32(0))"
    ),
    "a clamp": "for i in range(16):\n    B[i] = A[T.max(0, T.min(i * 7 - 5, 15))]",
    "a remainder": "for i in range(16):\n    B[i] = A[(i * 11 + 3) % 16]",
    "a quotient": "for i in range(16):\n    B[i] = A[i // 2]",
    "a choice": "for i in range(16):\n    B[i] = A[T.Select(i < 8, i + 8, i - 8)]",
    "a name": "for i in range(8):\n    j: T.let[T.int32] = i * 2\n    B[j] = A[j + 1]",
    "a name in a value": "v = T.float32()\nfor i in range(16):\n    B[i] = T.Let(v * v, where={v: A[i]})",
    "vectors": "for i in range(4):\n    B[T.ramp(i * 4, 1, 4)] = A[T.ramp(i * 4, 1, 4)]",
    "a block": (
        "for i in range(16):\n    with T.sblock('b'):\n        v = T.axis.spatial(16, i)\n        B[v] = A[v]"
    ),
    "a block with a predicate": (
        "for i, j in T.grid(5, 4):\n    with T.sblock('b'):\n"
        "        v = T.axis.spatial(16, i * 4 + j)\n        T.where(i * 4 + j < 16)\n        B[v] = A[v]"
    ),
    "a loop whose size another sets": (
        "for i in range(4):\n    for j in range(i + 1):\n        B[i * 4 + j] = A[j]"
    ),
}
LEAVES = {
    "a constant": "B[16] = A[0]",
    "a constant below": "B[-1] = A[0]",
    "a gigabyte further": "for i in range(16):\n    B[i + 1073741824] = A[i]",
    "a loop": "for i in range(17):\n    B[i] = A[0]",
    "a read": "for i in range(16):\n    B[i] = A[i + 1]",
    "a read in a value": "for i in range(16):\n    B[i] = T.exp(A[i] + A[i * 2])",
    "a read that a value names": (
        "v = T.float32()\nfor i in range(16):\n    B[i] = T.Let(v * v, where={v: A[i + 1]})"
    ),
    "an index with a name": "v = T.int32()\nfor i in range(16):\n    B[T.Let(v + 1, where={v: i})] = A[i]",
    "a condition that is too wide": "for i in range(20):\n    if i < 17:\n        B[i] = A[0]",
    "a condition on the other side": (
        "for i in range(20):\n    if i < 16:\n        B[i] = A[0]\n    else:\n        B[i] = A[1]"
    ),
    "a condition of real numbers": "if not (A[0] < A[1] or A[1] <= A[0]):\n    B[99] = A[0]",
    "a sum beyond 32 bits": "for i in range(16):\n    B[(i * 1000000000 + 5) // 2147483647] = A[0]",
    "a remainder of such a product": "for i in range(16):\n    B[(i * 1000000000) % 16] = A[0]",
    "a clamp that is idle where nothing wraps": (
        "for i in range(16):\n    B[T.min(T.max(i * 1000000000, 0), 15)] = A[0]"
    ),
    "places of an image that is resized by what it holds": (
        "for i in range(16):\n"
        "    B[i] = A[T.max(T.min(T.Cast('int64', T.floor(T.Cast('float32', i) * A[0])) + 1, 15), 0)]"
    ),
    "a place beyond a resized image": (
        "for i in range(16):\n    B[i] = A[T.Cast('int64', T.floor(T.Cast('float32', i) * T.float32(1.5)))]"
    ),
    "both sides of a choice": "for i in range(16):\n    B[i] = T.Select(i < 8, A[i + 8], A[i + 1])",
    "a converted number": "for i in range(16):\n    B[T.Cast('int32', A[i])] = A[i]",
    "vectors at the end": "for i in range(16):\n    B[T.ramp(i, 1, 4)] = A[T.ramp(0, 1, 4)]",
    "steps of vectors": "B[T.ramp(0, 5, 4)] = A[T.ramp(0, 5, 4)]\nB[T.ramp(0, 6, 4)] = A[T.ramp(0, 5, 4)]",
    "a block outside of its domain": (
        "for i in range(64):\n    with T.sblock('b'):\n        v = T.axis.spatial(16, i)\n        B[v] = A[v]"
    ),
    "a smaller buffer": "C = T.alloc_buffer((4,))\nfor i in range(16):\n    C[i] = A[i]",
    "a division by what may be zero": "for i in range(16):\n    B[i % (i - 3)] = A[i]",
}


@pytest.mark.parametrize("name", PROVED)
def test_an_access_that_arithmetic_bounds_is_allowed(name: str) -> None:
    check_bounds(module(PROVED[name]))


@pytest.mark.parametrize("of", [functions.exp, functions.log, functions.sinh, functions.atanh])
def test_a_function_of_ours_that_names_values_is_allowed(of: Callable[..., Any]) -> None:
    x = te.placeholder((4, 8), "float32")
    check_function(te.create_prim_func([x, functions.apply_elementwise(of, x)]), {})


@pytest.mark.parametrize("check", [check_bounds, check_schedule])
@pytest.mark.parametrize("name", LEAVES)
def test_an_access_that_may_leave_its_buffer_is_refused_by_name(
    name: str, check: Callable[[Any], None]
) -> None:
    words = (
        r"the program (reads|writes) [ABC]\[.+\], which has \d+ elements|leaves its domain|leave the range"
    )
    with pytest.raises(ValueError, match=words):
        check(module(LEAVES[name]))


SCALED = """
C = T.sblock_alloc_buffer((16,))
for i in range(16):
    with T.sblock("first"):
        v = T.axis.spatial(16, i)
        C[v] = A[v] * 2.0
for i in range(16):
    with T.sblock("second"):
        v = T.axis.spatial(16, i)
        B[v] = C[v]
"""


def relaid(index_of: Callable[[Any], Any]) -> Any:
    """The program after a trace that gives C another layout, which it says is injective."""
    layout = tvm.ir.save_json(IndexMap.from_func(lambda i: [index_of(i)]))
    steps = [
        ["GetSBlock", [], ["first", "main"], ["b0"]],
        ["TransformLayout", ["b0", layout], [0, 1, None, 1], []],
    ]
    return apply_trace(module(SCALED), [steps, []]).mod


@pytest.mark.parametrize(
    "index_of", [lambda i: i - 8, lambda i: i + 100, lambda i: i * i], ids=["below zero", "beyond", "squares"]
)
def test_a_trace_moves_no_access_out_of_a_buffer(index_of: Callable[[Any], Any]) -> None:
    check_schedule(relaid(lambda i: 15 - i))
    with pytest.raises(BROKEN):
        relaid(index_of)


def test_the_error_names_the_buffer_and_the_index() -> None:
    words = r"^the program writes B\[i \+ 1073741824\], which has 16 elements$"
    with pytest.raises(ValueError, match=words):
        check_bounds(module(LEAVES["a gigabyte further"]))


GATHER = "for i in range(8):\n    B[i] = A[{}]"


@pytest.mark.parametrize(
    "index", ["I[i]", "T.Select(I[i] < T.int64(0), I[i] + T.int64(16), I[i])", "I[i] % T.int64(16)"]
)
def test_index_tensors_have_the_values_that_candidates_are_measured_with(index: str) -> None:
    body = f"""
for i in range(8):
    with T.sblock("b"):
        v = T.axis.spatial(8, i)
        B[v] = A[{index.replace("I[i]", "I[v]")}]
"""
    check_bounds(module(body, INDEXED))


def test_an_index_tensor_that_a_schedule_copies_keeps_its_values() -> None:
    body = """
for i in range(8):
    with T.sblock("take"):
        v = T.axis.spatial(8, i)
        B[v] = A[I[v]]
"""
    schedule = tvm.s_tir.Schedule(module(body, INDEXED))
    block = schedule.get_sblock("take")
    copied = next(i for i, read in enumerate(schedule.get(block).reads) if read.source.name == "I")
    schedule.cache_read(block, copied, "global")
    assert "I_global[v]" in schedule.mod.script()
    check_schedule(schedule.mod)


@pytest.mark.parametrize("index", ["I[i] * T.int64(1073741824)", "I[i] + T.int64(1)", "I[i] << T.int64(20)"])
def test_a_program_that_changes_an_index_before_it_reads_is_refused(index: str) -> None:
    with pytest.raises(ValueError, match=r"the program (reads A|computes)"):
        check_bounds(module(GATHER.format(index), INDEXED))


@pytest.mark.parametrize("index", ["I[i]", "T.Select(I[i] < T.int64(0), I[i] + T.int64(16), I[i])"])
def test_an_index_tensor_of_any_value_is_refused(index: str) -> None:
    with pytest.raises(ValueError, match=r"the program (reads A|computes)"):
        check_function(function(GATHER.format(index), INDEXED), {})


@pytest.mark.parametrize("index", ["T.max(T.int64(0), T.min(I[i], T.int64(15)))", "I[i] % T.int64(16)"])
def test_an_index_tensor_of_any_value_may_be_clamped(index: str) -> None:
    check_function(function(GATHER.format(index), INDEXED), {})


def test_a_condition_on_an_index_tensor_bounds_it() -> None:
    guarded = "for i in range(8):\n    if T.int64(0) <= I[i] and I[i] < T.int64(16):\n        A[I[i]] = B[i]"
    check_function(function(guarded, INDEXED), {})


def test_a_condition_on_a_number_that_is_stored_over_bounds_nothing() -> None:
    body = "if T.int64(0) <= I[0] and I[0] < T.int64(16):\n    I[0] = T.int64(99999)\n    A[I[0]] = B[0]"
    with pytest.raises(ValueError, match="the program writes A"):
        check_function(function(body, INDEXED), {})


def test_nothing_is_written_where_a_number_in_memory_says() -> None:
    """Memory that nobody stored to holds any number."""
    body = "C = T.alloc_buffer((8,), 'int64')\nC[0] = T.int64(0)\nA[C[1]] = B[0]"
    with pytest.raises(ValueError, match=r"the program writes A\[C\[1\]\]"):
        check_function(function(body, INDEXED), {})


def test_sizes_that_are_known_only_at_a_call_bound_accesses() -> None:
    head = "@T.prim_func(s_tir=True)\ndef main(a: T.handle, b: T.handle):\n    n = T.int64()\n"
    head += "    A = T.match_buffer(a, (n,))\n    B = T.match_buffer(b, (n,))\n    for i in T.serial(n):\n"
    check_function(tvm.script.from_source(head + "        B[i] = A[n - T.int64(1) - i]\n"), {})
    with pytest.raises(ValueError, match="the program writes B"):
        check_function(tvm.script.from_source(head + "        B[i + T.int64(1)] = A[i]\n"), {})


PART = """
with T.sblock("b"):
    C = T.match_buffer(B[{start}:{end}], (4,), offset_factor=1)
    for i in range({count}):
        C[i] = A[i]
"""


def test_a_part_of_a_buffer_has_bounds_of_its_own() -> None:
    check_bounds(module(PART.format(start=12, end=16, count=4)))
    for wrong, words in (
        ({"start": 13, "end": 17, "count": 4}, "leaves B"),
        ({"start": 12, "end": 16, "count": 5}, "writes C"),
    ):
        with pytest.raises(ValueError, match=words):
            check_bounds(module(PART.format(**wrong)))


TILES = (
    'T.evaluate(T.call_extern("{result}", "mallorn_tiles_tdpbusd", {pointers}, T.int64(64), T.int64(0), '
    "T.int64({places}), T.int64(1), T.int64(64), T.address_of(C[0]), T.address_of(C[0]), "
    "T.address_of(S[0]), T.address_of(S[0]), T.int64(128), T.int32(16), T.int32(16)))"
)
TILED = 'A: T.Buffer(({size},), "uint8"), C: T.Buffer((1024,), "int8"), S: T.Buffer((512,), "int32")'
GOOD = {"result": "void", "pointers": "T.address_of(A[0]), T.address_of(A[0])", "places": 1}


def test_a_tile_function_takes_as_many_bytes_as_its_buffers_have() -> None:
    check_function(function(TILES.format(**GOOD), TILED.format(size=1024)), {})
    for size, changed in (
        (1023, {}),
        (1024, {"places": 2}),
        (1024, {"places": -1}),
        (1024, {"places": 1 << 62}),
    ):
        with pytest.raises(ValueError, match=r"leaves the buffer|calls a function with"):
            check_function(function(TILES.format(**GOOD | changed), TILED.format(size=size)), {})


def test_a_tile_function_runs_its_loops_once_at_least() -> None:
    zero = GOOD | {"places": 0}
    check_function(function(TILES.format(**zero), TILED.format(size=1024)), {})
    small = TILED.format(size=1024).replace("C: T.Buffer((1024,)", "C: T.Buffer((64,)")
    with pytest.raises(ValueError, match="leaves the buffer C"):
        check_function(function(TILES.format(**zero), small), {})


@pytest.mark.parametrize(
    "changed",
    [{"result": "int32"}, {"pointers": "T.int64(64), T.address_of(A[0]), T.address_of(A[0])"}],
)
def test_a_function_of_ours_is_called_with_its_own_types(changed: dict[str, str]) -> None:
    """LLVM would take a number for an address."""
    with pytest.raises(ValueError, match=r"the program calls mallorn_tiles_tdpbusd with|too many values"):
        check_function(function(TILES.format(**GOOD | changed), TILED.format(size=1024)), {})


@pytest.mark.parametrize("data", [data for _, _, data in accesses.forged()])
def test_an_expression_has_the_type_that_its_parts_have(data: bytes) -> None:
    with pytest.raises(Unschedulable, match="a stored program is refused: "):
        parse_module(data.decode())


def test_stored_programs_are_proved_before_anything_else_reads_them() -> None:
    with pytest.raises(
        Unschedulable, match=r"a stored program is refused: the program writes B\[i \+ 1073741824\]"
    ):
        parse_module(tvm.ir.save_json(module(LEAVES["a gigabyte further"])))
