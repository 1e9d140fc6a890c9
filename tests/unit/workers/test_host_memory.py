"""For which models this host's memory is little, and what of it is free within its container's limit."""

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


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the kernel's files: a host with 4 MiB available."""
    for name in ("LIMIT", "USED", "FACTS"):
        monkeypatch.setattr(memory, name, tmp_path / name)
    (tmp_path / "FACTS").write_text("MemTotal:  8192 kB\nMemAvailable:  4096 kB\nHugePages_Total:  0\n")
    return tmp_path


def test_without_a_limit_it_is_the_hosts(told: Path) -> None:
    assert memory.free_bytes() == 4 << 20
    (told / "LIMIT").write_text("max\n")
    (told / "USED").write_text("1\n")
    assert memory.free_bytes() == 4 << 20


@pytest.mark.parametrize(
    ("limit", "used", "free"), [(3 << 20, 1 << 20, 2 << 20), (9 << 20, 0, 4 << 20), (1, 2, 0)]
)
def test_a_container_has_what_is_left_of_its_limit(told: Path, limit: int, used: int, free: int) -> None:
    (told / "LIMIT").write_text(f"{limit}\n")
    (told / "USED").write_text(f"{used}\n")
    assert memory.free_bytes() == free


def test_this_host_has_some() -> None:
    assert 0 < memory.free_bytes() <= memory.total_bytes()
