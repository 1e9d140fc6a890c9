"""What a machine computes and moves, as people read it."""

from mallorn.cli.devices_and_workers import describe_machine
from mallorn.core.values.fleet import DeviceMachine
from mallorn.core.values.machine import Cache, assume_typical_cpu


def test_a_machine_is_told_in_one_line() -> None:
    caches = Cache(bytes=32 << 10, gbytes_per_sec=222.0), Cache(bytes=16 << 20, gbytes_per_sec=99.5)
    changes = {"caches": caches, "gflops": {"float32": 236.4, "float64": 118.0}, "fork_us": 3.13}
    machine = assume_typical_cpu(cores=2, lanes=16).model_copy(update=changes)
    assert describe_machine(DeviceMachine(machine=machine)) == (
        "GFLOP/s on 2 cores: float32 236, float64 118; vectors of 16, 8 to 28 summed at once; "
        "caches: 32 KB at 222 GB/s, 16 MB at 100 GB/s; memory: 20 GB/s; a parallel loop starts in 3.1 us"
    )


def test_what_is_not_measured_says_why() -> None:
    assert describe_machine(None) == "not measured yet"
    assert (
        describe_machine(DeviceMachine(reason="the device was lost")) == "not measured: the device was lost"
    )
