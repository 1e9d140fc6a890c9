"""Simulated devices keep time."""

import pytest

from benchmarks.sim.devices import Devices


def test_one_device_does_one_thing_after_the_other() -> None:
    devices = Devices[str](1)
    devices.submit("long", 5.0)
    devices.submit("short", 1.0)
    assert [(devices.finish_next(), devices.now_sec) for _ in range(2)] == [("long", 5.0), ("short", 6.0)]
    assert not devices.busy


def test_two_devices_work_side_by_side_and_the_third_piece_waits() -> None:
    devices = Devices[str](2)
    for name, seconds in (("a", 4.0), ("b", 1.0), ("c", 2.0)):
        devices.submit(name, seconds)
    assert [(devices.finish_next(), devices.now_sec) for _ in range(3)] == [
        ("b", 1.0),
        ("c", 3.0),
        ("a", 4.0),
    ]


def test_what_ends_together_ends_in_the_order_it_began() -> None:
    devices = Devices[str](3)
    for name in "cab":
        devices.submit(name, 1.0)
    assert "".join(devices.finish_next() for _ in range(3)) == "cab"


def test_work_that_comes_late_starts_late() -> None:
    devices = Devices[str](1)
    devices.submit("a", 3.0)
    devices.finish_next()
    devices.submit("b", 1.0)
    devices.finish_next()
    assert devices.now_sec == 4.0
    with pytest.raises(IndexError):
        devices.finish_next()
