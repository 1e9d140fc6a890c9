"""For which models this host's memory is little, and what of it is free within its container's limit."""

from types import SimpleNamespace

import psutil
import pytest

from mallorn.workers.host import host_memory
from tests.fixtures.control_groups import V2_MOUNT, MadeUp


def test_a_host_has_the_memory_that_is_installed(made_up_groups: MadeUp) -> None:
    made_up_groups("0::/a", V2_MOUNT, {"a/memory.max": "max\n"})
    assert host_memory.total_bytes() > 1 << 28


def test_a_container_has_its_limit(made_up_groups: MadeUp) -> None:
    made_up_groups("0::/a/b", V2_MOUNT, {"a/memory.max": "1048576\n"})
    assert host_memory.total_bytes() == 1 << 20


def test_a_model_is_large_that_fills_it_when_all_engines_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "total_bytes", lambda: 16 << 30)
    assert host_memory.is_large(4 << 30)
    assert host_memory.is_large(2 << 30)
    assert not host_memory.is_large(1 << 30)


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [("max", 1, 4 << 20), (3 << 20, 1 << 20, 2 << 20), (9 << 20, 0, 4 << 20), (1, 2, 0)],
)
def test_a_process_may_have_what_is_available_and_left_of_the_limit(
    limit: int | str,
    used: int,
    free: int,
    monkeypatch: pytest.MonkeyPatch,
    made_up_groups: MadeUp,
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4 << 20))
    made_up_groups("0::/", V2_MOUNT, {"memory.max": f"{limit}\n", "memory.current": f"{used}\n"})
    assert host_memory.free_bytes() == free


def test_this_host_has_some() -> None:
    assert 0 < host_memory.free_bytes() <= host_memory.total_bytes()
