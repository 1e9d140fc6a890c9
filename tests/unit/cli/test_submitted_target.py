"""What a job for this machine is submitted for, before its service knows what `local` is."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mallorn.client.local_service import Connected, resolve_target_to_submit
from mallorn.core.targets import parse_target
from mallorn.stack.data_directory import DataDir
from mallorn.workers.device.detect_host import read_host_facts
from mallorn.workers.host.code_digest import TVM_VERSION

DATA = DataDir(Path("/data"))
HERE = read_host_facts()["host_class"]
DETECTED = parse_target({"kind": "llvm", "mcpu": "detected", "num-cores": 1})


def device(target: str, **changes: Any) -> SimpleNamespace:
    """A device of this host that has stopped."""
    fields: dict[str, Any] = {"online": False, "host_class": HERE, "tvm_version": TVM_VERSION}
    is_local = changes.pop("is_local", True)
    return SimpleNamespace(target=target, info=SimpleNamespace(is_local=is_local), **fields | changes)


@pytest.fixture(autouse=True)
def detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mallorn.workers.device.detect_host.detect_target", lambda: DETECTED)


def submitted(*devices: SimpleNamespace, target: str = "local", data: DataDir | None = DATA) -> str:
    api: Any = SimpleNamespace(devices=lambda: list(devices))
    return resolve_target_to_submit(Connected(api, data), target)


def test_a_service_with_a_device_says_what_local_is() -> None:
    assert submitted(device("stopped"), device("online", online=True)) == "local"


def test_a_service_elsewhere_says_what_local_is() -> None:
    assert submitted(device("known"), data=None) == "local"


def test_the_target_of_this_hosts_last_device_is_taken_as_it_is() -> None:
    assert submitted(device("other", is_local=False), device("known")) == "known"


@pytest.mark.parametrize(
    "devices",
    [[], [device("old", host_class="fewer-cores")], [device("old", tvm_version="0.1")]],
    ids=["none", "another host", "another TVM"],
)
def test_without_such_a_device_the_target_is_detected_here(devices: list[SimpleNamespace]) -> None:
    assert submitted(*devices) == DETECTED.text


def test_a_target_that_was_named_stays() -> None:
    assert submitted(target='{"kind":"llvm"}') == '{"kind":"llvm"}'
