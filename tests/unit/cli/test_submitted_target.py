"""What a job is submitted for: `local` and `cuda` mean what the service says, if it knows."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from mallorn.client.local_service import Connected, resolve_target_to_submit
from mallorn.core.errors import InvalidTarget
from mallorn.core.targets import parse_target
from mallorn.stack.data_directory import DataDir
from mallorn.workers.device.detect_host import read_host_facts
from mallorn.workers.host.code_digest import TVM_VERSION

DATA = DataDir(Path("/data"))
HERE = read_host_facts()["host_class"]
DETECTED = parse_target({"kind": "llvm", "mcpu": "detected", "num-cores": 1})


def cpu(name: str) -> str:
    return parse_target({"kind": "llvm", "mcpu": name, "num-cores": 1}).text


def device(mcpu: str, **changes: Any) -> SimpleNamespace:
    """A device of this host that has stopped."""
    fields: dict[str, Any] = {"online": False, "host_class": HERE, "tvm_version": TVM_VERSION}
    is_local = changes.pop("is_local", True)
    return SimpleNamespace(target=cpu(mcpu), info=SimpleNamespace(is_local=is_local), **fields | changes)


@pytest.fixture(autouse=True)
def detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mallorn.workers.device.detect_host.detect_target", lambda: DETECTED)


def submitted(*devices: SimpleNamespace, target: str = "local", data: DataDir | None = DATA) -> str:
    """The target's CPU. A service filters devices by `local` or `cuda`: those online, here."""

    def known(target: str | None = None) -> list[SimpleNamespace]:
        return [one for one in devices if target is None or one.online or data is None]

    api: Any = SimpleNamespace(devices=known)
    return str(resolve_target_to_submit(Connected(api, data), target, "").attrs.get("mcpu"))


def test_a_service_with_a_device_says_what_local_is() -> None:
    assert submitted(device("stopped"), device("online", online=True)) == "online"


@pytest.mark.parametrize("target", ["local", "cuda"])
def test_a_service_elsewhere_says_what_local_and_cuda_are(target: str) -> None:
    assert submitted(device("known"), device("known"), data=None, target=target) == "known"


def test_a_service_that_does_not_say_what_local_is_is_not_guessed_at() -> None:
    with pytest.raises(InvalidTarget, match="2 targets that `local` may mean"):
        submitted(device("one"), device("two"), data=None)


def test_a_virtual_device_becomes_the_targets_device() -> None:
    target = resolve_target_to_submit(Connected(Mock(), DATA), DETECTED.text, "simulated")
    assert target.virtual_device == "simulated"


def test_the_target_of_this_hosts_last_device_is_taken_as_it_is() -> None:
    assert submitted(device("other", is_local=False), device("known")) == "known"


@pytest.mark.parametrize(
    "devices",
    [[], [device("old", host_class="fewer-cores")], [device("old", tvm_version="0.1")]],
    ids=["none", "another host", "another TVM"],
)
def test_without_such_a_device_the_target_is_detected_here(devices: list[SimpleNamespace]) -> None:
    assert submitted(*devices) == "detected"


def test_a_target_that_was_named_stays() -> None:
    assert submitted(target=cpu("named"), data=None) == "named"
