"""Arguments of tensor programs: integers that index something stay inside it."""

from collections.abc import Callable
from typing import Any

from tvm import te, topi

from mallorn.workers.interfaces.tensor_arguments import FREE_RANGE, pack_arguments, unpack_arguments
from mallorn.workers.tvm.programs.program_blocks import arguments

Program = Callable[..., Any]


def test_arguments_and_outputs_in_calling_order(program_of: Program) -> None:
    x, w = te.placeholder((4, 8), "float32"), te.placeholder((8, 16), "float16")
    found = arguments(program_of(x, w, topi.nn.matmul(x, topi.cast(w, "float32"))))
    stored = {
        "args": [
            ["TENSOR", "float32", [4, 8]],
            ["TENSOR", "float16", [8, 16]],
            ["TENSOR", "float32", [4, 16]],
        ],
        "outputs": [2],
        "ranges": {},
    }
    assert pack_arguments(found) == stored
    assert unpack_arguments(stored) == found


def test_an_index_stays_inside_what_it_indexes(program_of: Program) -> None:
    table, index = te.placeholder((100, 8), "float32"), te.placeholder((5,), "int64")
    assert arguments(program_of(table, index, topi.take(table, index, axis=0))).ranges == {"1": (0, 100)}


def test_an_index_of_two_tables_stays_inside_the_smaller(program_of: Program) -> None:
    tables = [te.placeholder((size, 8), "float32") for size in (100, 30)]
    index = te.placeholder((5,), "int64")
    total = topi.add(*(topi.take(table, index, axis=0) for table in tables))
    assert arguments(program_of(*tables, index, total)).ranges == {"2": (0, 30)}


def test_an_index_computed_on_the_way_is_followed_to_its_source(program_of: Program) -> None:
    table, index = te.placeholder((100, 8), "float32"), te.placeholder((5,), "int64")
    wrapped = te.compute((5,), lambda i: te.if_then_else(index[i] < 0, index[i] + 100, index[i]))
    found = arguments(program_of(table, index, topi.take(table, wrapped, axis=0, mode="fast")))
    assert found.ranges == {"1": (0, 100)}


def test_bytes_take_all_values_in_checks_unless_they_look_something_up(program_of: Program) -> None:
    bytes_, index = te.placeholder((8, 64), "int8"), te.placeholder((4,), "uint8")
    free = arguments(program_of(bytes_, topi.cast(bytes_, "int32")))
    assert (free.ranges, free.with_full_byte_range().ranges["0"]) == ({"0": FREE_RANGE}, (-128, 128))
    for rows in (2, 100):
        table = te.placeholder((rows, 8), "float32")
        found = arguments(program_of(table, index, topi.take(table, index, axis=0)))
        assert found.with_full_byte_range().ranges["1"][1] <= rows


def test_other_integers_are_flags(program_of: Program) -> None:
    mask, x = te.placeholder((4,), "int64"), te.placeholder((4,), "float32")
    masked = te.compute((4,), lambda i: te.if_then_else(mask[i] > 0, x[i], 0.0))
    assert arguments(program_of(mask, x, masked)).ranges == {"0": FREE_RANGE}
