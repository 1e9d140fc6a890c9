"""What the constructor is told of a program is what its blocks touch."""

import tvm
from tvm import te, topi

from mallorn.searchers.loop_nest import Access, Axis, Nest
from mallorn.workers.tvm.programs.loop_nests import nests
from tests.unit.tvm_space.programs import conv2d, matmul, text_of


def only_sum(tir: str) -> Nest:
    (nest,) = [nest for nest in nests(tir) if any(axis.reduced for axis in nest.axes)]
    return nest


def test_a_product_reads_rows_and_columns() -> None:
    nest = only_sum(matmul(rows=32, columns=64, depth=48))
    assert nest.axes == (Axis(32), Axis(64), Axis(48, reduced=True))
    assert nest.reads == (
        Access((32, 48), (((0, 1),), ((2, 1),))),
        Access((48, 64), (((2, 1),), ((1, 1),))),
    )
    assert nest.write == Access((32, 64), (((0, 1),), ((1, 1),)))


def test_a_window_slides_over_what_another_block_padded() -> None:
    padded, weights = only_sum(conv2d()).reads
    assert padded.made
    assert not weights.made
    assert padded.indices[1] == ((1, 1), (4, 1))


def test_strides_and_dilation_are_steps() -> None:
    a, w = te.placeholder((1, 33, 33, 8), name="a"), te.placeholder((3, 3, 8, 16), name="w")
    (read, _) = only_sum(text_of(a, w, topi.nn.conv2d_nhwc(a, w, 2, 0, 3))).reads
    assert read.indices[1] == ((1, 2), (4, 3))


def test_weights_that_are_packed_ahead_have_the_layout_of_their_tiles() -> None:
    a, w = te.placeholder((16, 32), name="a"), te.placeholder((32, 64), name="w")
    k = te.reduce_axis((0, 32), name="k")
    out = te.compute((16, 64), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k))
    mod = te.create_prim_func([a, w, out]).with_attr("layout_free_buffers", [1])
    left, right = only_sum(str(tvm.ir.save_json(tvm.IRModule({"main": mod})))).reads
    assert (left.relaid, right.relaid) == (False, True)
    assert (left.stride(0), right.stride(1)) == (32 * 4, 0)


def test_elements_may_be_narrow() -> None:
    a = te.placeholder((4, 8), dtype="int8", name="a")
    k = te.reduce_axis((0, 8), name="k")
    out = te.compute((4,), lambda i: te.sum(a[i, k].astype("int32"), axis=k))
    nest = only_sum(text_of(a, out))
    assert (nest.reads[0].element_bytes, nest.write.element_bytes) == (1, 4)


def test_what_is_looked_up_anywhere_has_no_axis() -> None:
    data, at = te.placeholder((100, 8), name="data"), te.placeholder((4,), dtype="int64", name="at")
    (nest,) = nests(text_of(data, at, topi.take(data, at, axis=0, mode="fast")))
    looked_up = next(read for read in nest.reads if read.shape == (100, 8))
    assert looked_up.indices[0] == ()
