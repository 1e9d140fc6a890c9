"""What a process had of the processors is what the kernel says of its threads."""

from pathlib import Path

import pytest

from workers.subprocesses.cpu_share import ProcessorShare


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for thread, counted in ((7, "1000000000 250000000 3"), (8, "500000000 250000000 1")):
        folder = tmp_path / "7" / "task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(f"{counted}\n")
    return tmp_path


def test_all_threads_count(proc: Path) -> None:
    assert ProcessorShare.of(7, proc) == ProcessorShare(ran_sec=1.5, waited_sec=0.5)


@pytest.mark.parametrize("pid", [None, 9])
def test_a_process_that_is_gone_had_nothing(proc: Path, pid: int | None) -> None:
    assert ProcessorShare.of(pid, proc) == ProcessorShare()


def test_more_waiting_than_running_is_a_small_share() -> None:
    before = ProcessorShare(1.0, 5.0)
    assert ProcessorShare(1.2, 5.3).is_small_since(before)
    assert not ProcessorShare(1.3, 5.2).is_small_since(before)
    assert not before.is_small_since(before)
