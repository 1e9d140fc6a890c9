"""What the times of probes say of a machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.errors import Unavailable
from mallorn.core.values.machine import AcceleratorAttributes, assume_typical_cpu
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.workers.device.slice_timing_result import Slice
from mallorn.workers.hardware_probe.measure_machine import (
    TimedProbe,
    derive_accelerator,
    derive_machine,
    detect_cache_levels,
)
from mallorn.workers.interfaces.hardware_probes import Finds, Probe
from mallorn.workers.interfaces.tensor_arguments import Arguments

KB = 1024
CURVE = {
    8: 220,
    16: 220,
    32: 220,
    64: 120,
    128: 118,
    512: 118,
    1024: 100,
    4096: 99,
    8192: 99,
    16384: 60,
    32768: 30,
}
CURVE |= {65536: 19, 131072: 19}


def timed(finds: Finds, giga: float, cores: int = 1, **facts: float | str) -> TimedProbe:
    probe = Probe(finds, "f", "l.so", Arguments(()), cores, work=1e9, **facts)  # type: ignore[arg-type]
    return TimedProbe(probe, Slice(1 / giga, None))


def peaks(lanes: int, rates: dict[int, float]) -> list[TimedProbe]:
    return [timed(Finds.PEAK, rate, lanes=lanes, sums=sums) for sums, rate in rates.items()]


WIDE = peaks(16, {2: 57, 4: 100, 6: 111, 12: 116, 28: 117, 30: 70, 32: 116})
REST = [
    *(timed(Finds.BANDWIDTH, rate, bytes=size * KB) for size, rate in CURVE.items()),
    timed(Finds.MEMORY, 40, cores=2),
    timed(Finds.FORK, 1.0, cores=2),
]


def test_every_level_is_found_with_what_it_holds_and_its_bandwidth() -> None:
    found = list(detect_cache_levels({size * KB: rate for size, rate in CURVE.items()}))
    assert [(each.bytes // KB, each.gbytes_per_sec) for each in found] == [(32, 220), (512, 118), (16384, 99)]


def test_a_size_that_was_disturbed_makes_no_level() -> None:
    disturbed = {size * KB: rate for size, rate in (CURVE | {128: 40, 4096: 11}).items()}
    assert [each.bytes // KB for each in detect_cache_levels(disturbed)] == [32, 512, 16384]


@given(st.dictionaries(st.integers(1, 1 << 30), st.floats(0.1, 1e3), min_size=1, max_size=30))
def test_levels_grow_outward_and_slow_down(curve: dict[int, float]) -> None:
    found = list(detect_cache_levels(curve))
    assert [each.bytes for each in found] == sorted({each.bytes for each in found})
    rates = [each.gbytes_per_sec for each in found]
    assert rates == sorted(rates, reverse=True)


def test_a_curve_without_a_level_has_one_cache_of_a_typical_size() -> None:
    (cache,) = detect_cache_levels({size * KB: 93.0 for size in CURVE})
    assert cache.gbytes_per_sec == 93.0
    assert cache.bytes == assume_typical_cpu(cores=1, lanes=4).caches[0].bytes


def test_few_sums_tell_how_many_a_core_waits_for_and_many_when_one_is_spilled() -> None:
    machine = derive_machine([*WIDE, *REST], cores=2)
    assert (machine.lanes, machine.in_flight, machine.registers, machine.core_gflops) == (16, 4, 28, 117)
    assert machine.measured


@pytest.mark.parametrize("shoulder", [90, 117])
def test_what_a_core_waits_for_hangs_on_no_single_run_near_the_peak(shoulder: float) -> None:
    chance = timed(Finds.PEAK, shoulder, lanes=16, sums=4)
    assert derive_machine([*[each for each in WIDE if each.probe.sums != 4], chance, *REST], 2).in_flight == 4


@pytest.mark.parametrize(("half", "lanes"), [(120.0, 16), (160.0, 8)])
def test_narrow_vectors_are_taken_only_where_they_pay(half: float, lanes: int) -> None:
    assert derive_machine([*WIDE, *peaks(8, {4: 50, 8: half}), *REST], cores=2).lanes == lanes


def test_the_peak_of_all_cores_is_said_by_type() -> None:
    wide = timed(Finds.PEAK, 110, cores=2, dtype="float64", lanes=8, sums=8)
    all_cores = timed(Finds.PEAK, 230, cores=2, lanes=16, sums=8)
    assert derive_machine([*WIDE, wide, all_cores, *REST], 2).gflops == {"float32": 230, "float64": 110}


@pytest.mark.parametrize("lacks", list(Finds))
def test_a_machine_of_which_a_part_is_unknown_is_not_measured(lacks: Finds) -> None:
    with pytest.raises(Unavailable, match="did not run"):
        derive_machine([each for each in [*WIDE, *REST] if each.probe.finds is not lacks], 2)


GPU = AcceleratorAttributes(multiprocessors=66, clock_ghz=1.98, l2_bytes=50 << 20)
TYPICAL = assume_typical_gpu("sm_90a", GPU)
GPU_TIMES = [
    timed(Finds.PEAK, 30_000),
    timed(Finds.PEAK, 300_000, dtype="float16"),
    timed(Finds.PEAK, 310_000, dtype="float16"),
    timed(Finds.BANDWIDTH, 66 * 250, bytes=16 << 10),
    timed(Finds.BANDWIDTH, 66 * 40, bytes=3 << 20),
    timed(Finds.MEMORY, 3000),
    timed(Finds.FORK, 1 / 2.5e-6),
]


def test_a_gpu_has_the_rates_that_its_probes_reach() -> None:
    machine = derive_accelerator(GPU_TIMES, TYPICAL)
    assert (machine.cores, machine.gpu, machine.measured) == (66, True, True)
    assert (machine.gflops["float32"], machine.gflops["float16"]) == (30_000, 310_000)
    assert [each.gbytes_per_sec for each in machine.caches] == [250, 40]
    assert [each.bytes for each in machine.caches] == [228 << 10, (50 << 20) // 66]
    assert (machine.memory_gbytes_per_sec, machine.fork_us) == (3000, 2.5)


def test_a_type_that_no_probe_reaches_has_the_typical_rate_of_so_many_multiprocessors() -> None:
    typical = assume_typical_gpu("sm_90a").gflops["int8"]
    assert derive_accelerator(GPU_TIMES, TYPICAL).gflops["int8"] == pytest.approx(typical / 2, rel=0.01)


@pytest.mark.parametrize("lacks", range(len(GPU_TIMES)))
def test_a_gpu_of_which_a_part_is_unknown_is_not_measured(lacks: int) -> None:
    remaining = [each for index, each in enumerate(GPU_TIMES) if index != lacks]
    if GPU_TIMES[lacks].probe.dtype == "float16":
        assert derive_accelerator(remaining, TYPICAL).measured
        return
    with pytest.raises(Unavailable, match="did not run"):
        derive_accelerator(remaining, TYPICAL)
