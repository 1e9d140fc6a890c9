"""A function that only calls a library is built like any other, with the passes behind the schedules, too."""

import numpy as np
import tvm
from tvm import relax

from graphc.export.compile_network import tasks_of
from graphc.tasks.wrap_extern_calls import calls
from tests.unit.graphc.networks import HASWELL, network, random, run

_BEFORE = ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR", "AttachAttrLayoutFreeBuffers")


def test_a_sort_goes_through_all_passes_and_is_no_task() -> None:
    def largest(_: object, x: object) -> object:
        return relax.op.topk(x, 3, ret_type="values")

    passes = [relax.backend.DispatchSortScan(), *(getattr(relax.transform, name)() for name in _BEFORE)]
    with tvm.target.Target(HASWELL):
        mod = tvm.transform.Sequential([*passes, calls()])(network(largest, (4, 32)))
        assert tasks_of(mod, tvm.target.Target(HASWELL)) == []
        mod = relax.transform.SplitLayoutRewritePreproc()(mod)
    x = random(4, 32)
    np.testing.assert_array_equal(run(mod, x), -np.sort(-x, axis=1)[:, :3])


def test_functions_with_loops_stay_as_they_are() -> None:
    mod = network(lambda _, x: relax.op.add(x, x), (4, 32))
    mod = relax.transform.LegalizeOps()(mod)
    tvm.ir.assert_structural_equal(calls()(mod), mod)
