"""onnxruntime is compared at its better setting: a thread for each CPU, or for each core as by itself."""

from collections.abc import Mapping

import pytest

from mallorn.workers.tvm import engine_child

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(
    ("threads", "cores", "times_us", "chosen"),
    [(4, 2, {2: 5.0, 4: 9.0}, 2), (4, 2, {2: 9.0, 4: 5.0}, 4), (2, 4, {}, 2)],
    ids=["one a core is faster", "one a processor is faster", "the target has fewer"],
)
def test_the_faster_counts(
    threads: int, cores: int, times_us: Mapping[int, float], chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_child, "physical_cores", lambda: cores)
    monkeypatch.setattr(engine_child, "_create_onnxruntime_runner", lambda _model, _inputs, count: count)
    monkeypatch.setattr(engine_child, "_rough_us", lambda count: times_us[count])
    assert engine_child.load_onnxruntime("m.onnx", "i.npz", threads).threads == chosen
    assert engine_child._methods["run"] == chosen  # type: ignore[comparison-overlap]
