"""A device that says what cannot be true of itself is left out, named, and harms no other."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from mallorn.core.settings import Settings
from mallorn.workers.device.device_class import LONGEST, endpoint_of
from mallorn.workers.measure import tracked_devices
from mallorn.workers.measure.tracked_devices import Fleet

HONEST: dict[str, Any] = {
    "name": "rack-7",
    "target": '{"kind":"llvm","num-cores":2}',
    "address": "10.0.0.7:9091",
    "is_local": False,
    "sandbox": "full",
    "host_id": "h",
    "host_class": "xeon-2c",
    "cpu_model": "Xeon",
    "cores": 2,
    "governor": "performance",
    "machine": "x86_64",
    "hostname": "rack-7",
    "tvm_version": "0.27.0",
    "threads": 2,
}
LIES: list[tuple[str, Any]] = [
    ("threads", float("inf")),
    ("threads", float("nan")),
    ("threads", -1),
    ("threads", 0),
    ("threads", json.loads("1e400")),
    ("threads", 10**18),
    ("threads", 10**30),
    ("threads", True),
    ("threads", "2"),
    ("threads", [2]),
    ("threads", None),
    ("cores", float("inf")),
    ("cores", "many"),
    ("name", ""),
    ("name", "x" * 201),
    ("name", "nul\0"),
    ("name", "half \ud800"),
    ("name", ["rack-7"]),
    ("host_class", {"a": 1}),
    ("host_id", 7),
    ("host_id", "simulated"),
    ("tvm_version", 0.27),
    ("cpu_model", "x" * LONGEST),
    ("cpu_model", 7),
    ("hostname", "nul\0"),
    ("is_local", "perhaps"),
    ("target", 7),
    ("target", '{"kind":"llvm","num-cores":1e400}'),
    ("extra", [[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]),
]


def server(about: Any, address: Any = ("10.0.0.7", 9091)) -> dict[str, Any]:
    return {"key": "server:mallorn-x", "addr": list(address), "busy": False, "mallorn": about}


@pytest.fixture
def tracked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a tracker says of its servers."""
    servers: list[Any] = []

    class Client:
        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __enter__(self) -> Any:
            return SimpleNamespace(summary=lambda: {"server_info": servers})

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(tracked_devices, "TrackerClient", Client)
    return servers


@pytest.mark.parametrize(("name", "lie"), LIES, ids=lambda value: repr(value)[:20])
def test_who_lies_is_left_out_and_the_others_measure(tracked: list[Any], name: str, lie: Any) -> None:
    tracked += [server(HONEST | {name: lie}), server(HONEST | {"name": "honest"})]
    assert [device.endpoint.name for device in Fleet(Settings()).devices()] == ["honest"]


@pytest.mark.parametrize("missing", ["name", "host_id", "host_class", "threads", "tvm_version", "target"])
def test_who_says_too_little_is_left_out(tracked: list[Any], missing: str) -> None:
    tracked.append(server({name: word for name, word in HONEST.items() if name != missing}))
    assert Fleet(Settings()).devices() == []


@pytest.mark.parametrize("about", [None, 7, [], ["mallorn"], "words", {}])
def test_what_is_no_description_is_left_out(tracked: list[Any], about: Any) -> None:
    tracked += [server(about), server(HONEST)]
    assert [device.endpoint.name for device in Fleet(Settings()).devices()] == ["rack-7"]


def test_a_liar_is_named_once(tracked: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    tracked.append(server(HONEST | {"threads": float("inf")}, ("10.0.0.7", 9091)))
    here = Fleet(Settings())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            here.devices()
    (line,) = caplog.messages
    assert "10.0.0.7" in line
    assert "finite" in line


def test_the_same_bounds_hold_for_whoever_holds_a_session() -> None:
    with pytest.raises(ValueError, match="finite"):
        endpoint_of(HONEST | {"threads": float("inf")})
    assert endpoint_of(HONEST).threads == 2
