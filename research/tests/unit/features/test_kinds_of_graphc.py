"""The package's views describe the kinds of schedules that graphc's passes bring."""

import numpy as np
import pytest
import tvm

from mallorn.searchers.decision_space import SketchRules
from mallorn.workers.tvm.space.sketches import design_space
from mallorn_research.features.loop_tree_view import LoopsView
from mallorn_research.features.schedule_primitives_view import Primitives
from tests.unit.graphc.test_bf16_dot_products import TARGET, fused
from tests.unit.graphc.test_fuse_pointwise_into_depthwise import followed, sketched


@pytest.mark.parametrize("joined", [False, True], ids=["alone", "joined by a branch"])
def test_a_model_of_loops_follows_its_traces(joined: bool) -> None:
    for sketch in design_space(tvm.ir.save_json(fused(joined=joined)), TARGET):
        rows = SketchRules(sketch).sample(np.random.default_rng(0), 8)
        described = LoopsView().extract_rows(sketch, (20.0, 3.0, 5.0, 6.0), rows)
        assert np.isfinite(described).all()
        assert len(np.unique(described, axis=0)) > 1


@pytest.mark.parametrize("extractor", [Primitives(), LoopsView()])
def test_models_take_strips_like_any_sketch(extractor: Primitives | LoopsView) -> None:
    sketch = sketched(followed(padding=1))
    rows = SketchRules(sketch).sample(np.random.default_rng(0), 8)
    described = extractor.extract_rows(sketch, (20.0, 1.0, 3.0, 3.0, 5.0, 3.0), rows)
    assert np.isfinite(described).all()
    assert len(np.unique(described, axis=0)) > 1
