"""The tracker hands a client a device of the class that it asks for, and keeps nobody who hung up."""

from typing import Any

import pytest

from mallorn.workers.device.authenticated_tracker import DeviceRequestQueue
from mallorn.workers.device.device_class import DeviceClass

FAST, SLOW = DeviceClass("fast", "0.27.0", 2), DeviceClass("slow", "0.27.0", 2)


class Device:
    def __init__(self, told: Any) -> None:
        self.told = told
        self.pending_matchkeys: set[str] = set()

    def summary(self) -> Any:
        return self.told


class Client:
    def __init__(self) -> None:
        self.is_gone = False
        self.got: list[str] = []

    def send_device(self, device: tuple[Any, ...]) -> bool:
        self.got.append(device[0])
        return True


def offer(requests: DeviceRequestQueue, name: str, kind: DeviceClass) -> Device:
    about = {"host_class": kind.host_class, "tvm_version": kind.tvm_version, "threads": kind.threads}
    device = Device({"mallorn": about})
    device.pending_matchkeys.add(f"key-{name}")
    requests.put((device, name, 9091, f"key-{name}"))
    return device


def ask(requests: DeviceRequestQueue, wanted: str) -> Client:
    client = Client()
    requests.ask(client, wanted)
    return client


def test_a_client_gets_a_device_of_its_class_however_many_others_are_free() -> None:
    requests = DeviceRequestQueue()
    offer(requests, "a", FAST)
    slow = offer(requests, "b", SLOW)
    assert ask(requests, SLOW.json_text).got == ["b"]
    assert slow.pending_matchkeys == set()
    assert ask(requests, "").got == ["a"]
    assert requests.summary() == {"free": 0, "pending": 0}


def test_who_waits_for_a_class_holds_up_nobody_who_waits_for_another() -> None:
    requests = DeviceRequestQueue()
    first, second, third = (
        ask(requests, SLOW.json_text),
        ask(requests, FAST.json_text),
        ask(requests, FAST.json_text),
    )
    offer(requests, "a", FAST)
    assert (first.got, second.got, third.got) == ([], ["a"], [])
    offer(requests, "b", SLOW)
    assert (first.got, third.got) == (["b"], [])


def test_who_hung_up_gets_nothing_and_is_forgotten() -> None:
    requests = DeviceRequestQueue()
    gone = ask(requests, SLOW.json_text)
    gone.is_gone = True
    waiting = ask(requests, FAST.json_text)
    assert requests.summary() == {"free": 0, "pending": 1}
    offer(requests, "a", FAST)
    assert (gone.got, waiting.got) == ([], ["a"])


def test_a_device_whose_class_changed_while_it_was_free_is_of_the_new_one() -> None:
    requests = DeviceRequestQueue()
    device = offer(requests, "a", FAST)
    device.told = {"mallorn": {**device.told["mallorn"], "host_class": SLOW.host_class}}
    assert ask(requests, FAST.json_text).got == []
    assert ask(requests, SLOW.json_text).got == ["a"]


@pytest.mark.parametrize("about", [{}, {"mallorn": None}, {"mallorn": {"host_class": "fast"}}])
def test_a_device_that_nobody_can_read_is_of_no_class(about: Any) -> None:
    requests = DeviceRequestQueue()
    requests.put((Device(about), "odd", 9091, "key"))
    assert ask(requests, FAST.json_text).got == []
