"""What others used of a host, from the kernel's own counters."""

from pathlib import Path

import pytest

from mallorn.workers.host.load_meter import Load, LoadMeter, wait_for_quiet

QUIET = Load(cores=2, others_cores=0.1, stolen=0.01, waiting=0.02)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with two processors on which this process and number 7 are ours."""
    monkeypatch.setattr("os.getpid", lambda: 6)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for pid in ("6", "7"):
        (tmp_path / pid).mkdir()
    tick(tmp_path)
    return tmp_path


def tick(proc: Path, user: int = 0, idle: int = 0, stolen: int = 0, ours: int = 0) -> None:
    """The counters after so many ticks."""
    (proc / "stat").write_text(f"cpu  {user} 0 0 {idle} 0 0 0 {stolen} 0 0\ncpu0 1 1 1 1\n")
    (proc / "6" / "stat").write_text("6 (python -m) x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0")
    (proc / "7" / "stat").write_text(f"7 (engine) R 1 1 1 0 -1 0 0 0 0 0 {ours} 0 0 0 20 0")


def meter(proc: Path) -> LoadMeter:
    return LoadMeter(lambda: [7], proc)


def test_our_own_engines_are_no_disturbance(proc: Path) -> None:
    watching = meter(proc)
    tick(proc, user=100, idle=100, ours=100)
    seen = watching.read_load()
    assert (seen.cores, seen.others_cores, seen.stolen) == (2, 0.0, 0.0)
    assert seen.disturbance_phrases() == []


def test_what_others_used_is_told_in_cores(proc: Path) -> None:
    watching = meter(proc)
    tick(proc, user=150, idle=50, ours=100)
    assert watching.read_load().disturbance_phrases() == ["other programs used 0.5 of 2 cores"]


def test_what_the_hypervisor_gave_to_others_is_told(proc: Path) -> None:
    watching = meter(proc)
    tick(proc, user=100, idle=60, stolen=40, ours=100)
    assert watching.read_load().disturbance_phrases() == [
        "other virtual machines had 20% of the processors' time"
    ]


def test_every_look_begins_anew(proc: Path) -> None:
    watching = meter(proc)
    tick(proc, user=100)
    watching.read_load()
    tick(proc, user=100, idle=100)
    assert watching.read_load().disturbance_phrases() == []


def test_waiting_counts_where_nothing_else_explains_it(proc: Path) -> None:
    (proc / "pressure").mkdir()
    pressure = proc / "pressure" / "cpu"
    pressure.write_text("some avg10=1 avg60=1 avg300=1 total=0\nfull avg10=0 total=0\n")
    watching = meter(proc)
    tick(proc, idle=100)
    pressure.write_text("some avg10=1 avg60=1 avg300=1 total=900000000000\nfull avg10=0 total=0\n")
    (words,) = watching.read_load().disturbance_phrases()
    assert words.startswith("programs waited for a processor")


def test_a_kernel_that_does_not_count_waiting_is_no_fault(proc: Path) -> None:
    (proc / "pressure" / "cpu").mkdir(parents=True)  # it is there, and reading it is an error
    watching = meter(proc)
    tick(proc, idle=100)
    assert watching.read_load().waiting == 0.0


def test_a_host_of_many_cores_is_quiet_while_its_system_uses_a_few() -> None:
    assert Load(cores=128, others_cores=2.0, stolen=0, waiting=0).disturbance_phrases() == []
    assert Load(cores=128, others_cores=3.0, stolen=0, waiting=0).disturbance_phrases()
    assert Load(cores=2, others_cores=0.3, stolen=0, waiting=0).disturbance_phrases()


def test_a_process_that_is_gone_used_nothing_more(proc: Path) -> None:
    watching = LoadMeter(lambda: [8], proc)
    tick(proc, user=10, idle=10)
    assert watching.read_load().others_cores == 1.0


def test_the_wait_for_a_quiet_host_ends_with_it(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watching, seconds = meter(proc), []

    def sleep(seconds_long: float) -> None:
        seconds.append(seconds_long)
        tick(proc, user=100 if len(seconds) == 1 else 101, idle=100 * len(seconds))

    monkeypatch.setattr("time.sleep", sleep)
    wait_for_quiet(watching.read_load, 900)
    assert len(seconds) == 2
