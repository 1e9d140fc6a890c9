"""A device says of every slice of a timing what kept it from its processors."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mallorn.workers.device import slice_timer
from mallorn.workers.device.device_kind import AcceleratorLoad
from mallorn.workers.device.slice_timer import SliceTimer
from mallorn.workers.host.load_meter import ContentionReading, Load


class Host:
    """A host whose clock goes on while slices run, and on which a thread waits for what it is told to."""

    def __init__(self) -> None:
        self.sec = self.waited_sec = 0.0
        self.stolen = 0.0

    def monotonic(self) -> float:
        return self.sec

    def read_counters(self) -> ContentionReading:
        return ContentionReading(self.sec, {"1": self.waited_sec}, rivals=3)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()
    meter = SimpleNamespace(read_load=lambda: Load(2, 0.0, host.stolen, 0.0))
    monkeypatch.setattr(slice_timer, "time", host)
    monkeypatch.setattr(slice_timer, "ContentionReading", host)
    monkeypatch.setattr(slice_timer, "LoadMeter", lambda _ours: meter)
    return host


class Library:
    """Slices that take these seconds, of which a thread waits for these; the timer's own clock may lie."""

    def __init__(self, host: Host, slices: Sequence[tuple[float, float]], told: float = 1.0) -> None:
        self._host, self._slices, self._told = host, slices, told
        self.timer: SliceTimer | None = None

    def time_evaluator(self, _function: str, _device: Any, *, number: int, **_how: Any) -> Any:
        def run(*_tensors: Any) -> Any:
            for sec, waited_sec in self._slices:
                assert self.timer is not None
                self.timer.count_slice()
                self._host.sec += sec
                self._host.waited_sec += waited_sec
            return SimpleNamespace(results=[self._told * sec / number for sec, _ in self._slices])

        return run


def disturbed(library: Library, slices: int, *, on_cores: bool = True) -> list[float | None]:
    library.timer = SliceTimer(on_cores, has_priority=True)
    times = library.timer.time_slices(library, "main", "cpu", 10, slices)  # type: ignore[arg-type]
    assert times.rivals == 3
    assert times.raised
    return [each.disturbed for each in times.slices]


def test_each_slice_has_its_own_share(host: Host) -> None:
    library = Library(host, [(0.01, 0.0), (0.02, 0.01), (0.01, 0.0)])
    assert disturbed(library, 3) == [0.0, pytest.approx(0.5), 0.0]


def test_slices_that_are_too_short_to_look_at_share_one(host: Host) -> None:
    library = Library(host, [(0.0005, 0.0), (0.0005, 0.0002), (0.001, 0.0), (0.01, 0.0)])
    assert disturbed(library, 4) == [pytest.approx(0.1)] * 3 + [0.0]


def test_what_the_hypervisor_had_counts_for_all_of_a_call(host: Host) -> None:
    host.stolen = 0.3
    assert disturbed(Library(host, [(0.01, 0.0), (0.01, 0.008)]), 2) == [0.3, pytest.approx(0.8)]


def test_a_clock_that_was_set_back_meanwhile_spoils_its_slices(host: Host) -> None:
    assert disturbed(Library(host, [(0.05, 0.0)], told=0.1), 1) == [1.0]


def test_of_a_gpu_nothing_is_known(host: Host) -> None:
    assert disturbed(Library(host, [(0.01, 0.01)]), 1, on_cores=False) == [None]


@pytest.mark.parametrize(
    "lost", [AcceleratorLoad(0.0), AcceleratorLoad(0.4, ("heat slowed the GPU down",)), AcceleratorLoad(None)]
)
def test_on_a_gpu_what_it_lost_counts_for_all_of_a_call_and_the_hosts_clock_for_nothing(
    host: Host, lost: AcceleratorLoad
) -> None:
    host.stolen = 0.3
    library = Library(host, [(0.01, 0.008), (0.01, 0.0)], told=0.001)
    library.timer = SliceTimer(
        on_cores=False, has_priority=False, accelerator=SimpleNamespace(read_load=lambda: lost)
    )  # type: ignore[arg-type]
    times = library.timer.time_slices(library, "main", "cuda", 10, 2)  # type: ignore[arg-type]
    assert [each.disturbed for each in times.slices] == [lost.share] * 2
    assert times.gpu == lost.words
