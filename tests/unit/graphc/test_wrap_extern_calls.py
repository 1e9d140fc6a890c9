"""A function that only calls a library is built like any other, with the passes behind the schedules, too."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from mallorn.graphc.export.compile_network import list_tuning_tasks
from mallorn.graphc.tasks.mark_tasks import WrapExternCalls
from tests.unit.graphc.networks import HASWELL, network, random, run
from tests.unit.graphc.tensor_function_conformance import TensorFunctionConformance

_BEFORE = ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR", "AttachAttrLayoutFreeBuffers")


def largest(_: object, x: object) -> Any:
    """Sorts numbers of a type that `sort_by_digits` leaves to TVM's library."""
    return relax.op.astype(relax.op.topk(relax.op.astype(x, "float16"), 3, ret_type="values"), "float32")


def test_a_sort_goes_through_all_passes_and_is_no_task() -> None:
    passes = [relax.backend.DispatchSortScan(), *(getattr(relax.transform, name)() for name in _BEFORE)]
    with tvm.target.Target(HASWELL):
        mod = tvm.transform.Sequential(passes)(network(largest, (4, 32)))
        mod = WrapExternCalls()(mod)
        tasks = list_tuning_tasks(mod, tvm.target.Target(HASWELL))
        assert [task.task_name.rstrip("0123456789") for task in tasks] == ["cast", "cast"]
        mod = relax.transform.SplitLayoutRewritePreproc()(mod)
    x = random(4, 32)
    half = x.astype("float16")
    np.testing.assert_array_equal(run(mod, x), -np.sort(-half, axis=1)[:, :3])


def test_a_sort_by_loops_of_our_own_goes_through_all_passes_too() -> None:
    """Its loops have no block of their own, which TVM's passes look for below the root."""
    before = TestWrapExternCalls().lowered(
        network(lambda _, x: relax.op.topk(x, 3, ret_type="values"), (4, 32))
    )
    mod = relax.transform.SplitLayoutRewritePreproc()(WrapExternCalls()(before))
    x = random(4, 32)
    np.testing.assert_array_equal(run(mod, x), -np.sort(-x, axis=1)[:, :3])


def test_a_scatter_whose_loops_tvm_fixed_is_no_task() -> None:
    rows, types = relax.const(np.array([[0], [2]])), [(4, 32), (2, 32)]
    mod = network(lambda _, x, y: relax.op.scatter_nd(x, rows, y), *types)
    with tvm.target.Target(HASWELL):
        mod = tvm.transform.Sequential([getattr(relax.transform, name)() for name in _BEFORE])(mod)
        assert list_tuning_tasks(mod, tvm.target.Target(HASWELL)) == []


def test_functions_with_loops_stay_as_they_are() -> None:
    mod = network(lambda _, x: relax.op.add(x, x), (4, 32))
    mod = relax.transform.LegalizeOps()(mod)
    tvm.ir.assert_structural_equal(WrapExternCalls()(mod), mod)


class TestWrapExternCalls(TensorFunctionConformance):
    PASS = WrapExternCalls
    WRITES, COUNTS = '\n        with T.sblock("root")', (0, 1)

    def fires(self) -> Any:
        return network(largest, (4, 32))

    def leaves(self) -> Mapping[str, Any]:
        return {"the function has blocks already": network(lambda _, x: relax.op.add(x, x), (4, 32))}
