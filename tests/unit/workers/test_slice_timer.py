"""A device says of every slice of a timing what kept it from its processors."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from workers.device import slice_timer
from workers.device.gpu_meter import GpuLoad
from workers.device.slice_timer import SliceTimer
from workers.host.load_meter import Load
from workers.host.processor_contention import ContentionReading


class Host:
    """A host whose clock goes on while slices run, and on which a thread waits for what it is told to."""

    def __init__(self) -> None:
        self.sec = self.waited_sec = 0.0
        self.stolen = 0.0

    def monotonic(self) -> float:
        return self.sec

    def look(self) -> ContentionReading:
        return ContentionReading(self.sec, {"1": self.waited_sec}, rivals=3)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host()
    meter = SimpleNamespace(look=lambda: Load(2, 0.0, host.stolen, 0.0))
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
                self.timer.next_slice()
                self._host.sec += sec
                self._host.waited_sec += waited_sec
            return SimpleNamespace(results=[self._told * sec / number for sec, _ in self._slices])

        return run

    def __getitem__(self, _function: str) -> Callable[..., None]:
        return lambda *_tensors: None


class Starts:
    """Parallel loops whose start takes these seconds at each look, and a microsecond at best."""

    def __init__(self, *looks_sec: float) -> None:
        self._looks_sec = list(looks_sec)

    def look(self) -> float:
        return self._looks_sec.pop(0) if self._looks_sec else 1e-6

    def excess(self, sec: float) -> float:
        return sec - 1e-6


def disturbed(library: Library, slices: int, *, on_cores: bool = True) -> list[float | None]:
    library.timer = SliceTimer(on_cores, raised=True, region_start=Starts())  # type: ignore[arg-type]
    times = library.timer.times(library, "main", "cpu", 10, slices)  # type: ignore[arg-type]
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


@pytest.mark.parametrize(
    ("looks_us", "regions", "run_us", "told_us"),
    [
        ((3.0, 3.0), 2, 10.0, 6.0),
        ((1.0, 3.0), 2, 10.0, 10.0),
        ((3.0, 3.0), 0, 10.0, 10.0),
        ((3.0, 3.0), 9, 10.0, 5.0),
        ((3.0, 3.0), 2, 2000.0, 2000.0),
    ],
    ids=["each loop", "the lower look counts", "no loop", "half is left", "a long run is no matter"],
)
def test_what_starting_threads_took_more_than_at_best_is_left_out(
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    looks_us: tuple[float, ...],
    regions: int,
    run_us: float,
    told_us: float,
) -> None:
    monkeypatch.setattr(slice_timer, "count_regions", lambda _run: regions)
    library = Library(host, [(10 * run_us / 1e6, 0.0)])
    starts = Starts(*(us / 1e6 for us in looks_us))
    library.timer = SliceTimer(True, raised=True, region_start=starts)  # type: ignore[arg-type]
    times = library.timer.times(library, "main", "cpu", 10, 1)  # type: ignore[arg-type]
    assert [each.mean_sec * 1e6 for each in times.slices] == [pytest.approx(told_us)]


def test_a_clock_that_was_set_back_meanwhile_spoils_its_slices(host: Host) -> None:
    assert disturbed(Library(host, [(0.05, 0.0)], told=0.1), 1) == [1.0]


def test_of_a_gpu_nothing_is_known(host: Host) -> None:
    assert disturbed(Library(host, [(0.01, 0.01)]), 1, on_cores=False) == [None]


@pytest.mark.parametrize("lost", [GpuLoad(0.0), GpuLoad(0.4, ("heat slowed the GPU down",)), GpuLoad(None)])
def test_on_a_gpu_what_it_lost_counts_for_all_of_a_call_and_the_hosts_clock_for_nothing(
    host: Host, lost: GpuLoad
) -> None:
    host.stolen = 0.3
    library = Library(host, [(0.01, 0.008), (0.01, 0.0)], told=0.001)
    library.timer = SliceTimer(on_cores=False, raised=False, gpu=SimpleNamespace(look=lambda: lost))  # type: ignore[arg-type]
    times = library.timer.times(library, "main", "cuda", 10, 2)  # type: ignore[arg-type]
    assert [each.disturbed for each in times.slices] == [lost.share] * 2
    assert times.gpu == lost.words
