"""Tasks of one operator share a cost model on CUDA, too: their sketches have the same keys at any size."""

import numpy as np
import pytest
import tvm

from mallorn.searchers.space import Sketch
from mallorn.workers.features.feature_extractor import AlignedDecisions
from mallorn.workers.tvm.programs.workload_key import structure_key
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.tvm_space.cuda_programs import product, target

HERE = target("sm_90a")
SIZES = ((512, 512, 512), (1024, 2048, 768))


def open_sketches(tir: str) -> list[Sketch]:
    """Those with choices. A fixed schedule is one program's own."""
    return [sketch for sketch in design_space(tir, HERE) if sketch.choices]


@pytest.mark.parametrize(("dtype", "sums"), [("float32", ""), ("float16", "float32")])
def test_sketches_of_two_sizes_have_the_same_keys(dtype: str, sums: str) -> None:
    """A size in a trace, for instance in an annotation, would tell them apart."""
    small, large = (product(*size, dtype, sums) for size in SIZES)
    keys = [[sketch.key for sketch in open_sketches(tir)] for tir in (small, large)]
    assert keys[0] == keys[1]
    assert keys[0]


def test_two_sizes_have_one_structure_and_columns_that_mean_the_same() -> None:
    small, large = (product(*size, "float16", "float32") for size in SIZES)
    assert structure_key(tvm.ir.load_json(small)) == structure_key(tvm.ir.load_json(large))
    first, second = open_sketches(small)[0], open_sketches(large)[0]
    assert [choice.width for choice in first.choices] == [choice.width for choice in second.choices]
    rows = np.ones((1, first.decision_count), dtype=np.int32)
    views = [AlignedDecisions().extract_rows(sketch, (1.0,), rows) for sketch in (first, second)]
    np.testing.assert_array_equal(*views)
