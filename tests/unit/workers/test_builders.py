"""A worker has as many builders as its host, its container and a round of a job have use for."""

import pytest

from mallorn.workers.process import worker_runtime as runtime

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cores", "memory_bytes", "builders"),
    [(2, 8 * GIB, 2), (16, 8 * GIB, 8), (128, 512 * GIB, 64), (4, GIB // 2, 1)],
    ids=["one a core", "as memory allows", "a round has no more candidates", "one in any case"],
)
def test_it_has_as_many_as_there_is_use_for(
    cores: int, memory_bytes: int, builders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "available_cores", lambda: cores)
    monkeypatch.setattr(runtime, "total_bytes", lambda: memory_bytes)
    assert runtime.choose_builder_count() == builders
