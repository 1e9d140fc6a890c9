"""For which models this host's memory is little."""

from pathlib import Path

import pytest

from workers.host import memory


def test_a_host_has_the_memory_that_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "LIMIT", tmp_path / "nowhere")
    assert memory.total_bytes() > 1 << 28


@pytest.mark.parametrize(("limit", "expected"), [("1073741824\n", 1 << 30), ("max\n", None)])
def test_a_container_has_its_limit(
    limit: str, expected: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "LIMIT", tmp_path / "nowhere")
    installed = memory.total_bytes()
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(memory, "LIMIT", tmp_path / "memory.max")
    assert memory.total_bytes() == (expected or installed)


def test_a_model_is_large_that_fills_it_when_all_engines_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "total_bytes", lambda: 16 << 30)
    assert memory.is_large(4 << 30)
    assert memory.is_large(2 << 30)
    assert not memory.is_large(1 << 30)
