"""The class of a host says what keeps its clock down, and is the same as ever where nothing does."""

import errno
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mallorn.workers.device import cpu_speed_limits, detect_host, measuring_conditions
from mallorn.workers.device.cpu_speed_limits import find_cpu_speed_limits, read_cpu_governor
from mallorn.workers.device.detect_host import Identity
from mallorn.workers.device.device_server import DeviceServer
from tests.fixtures.control_groups import V2_MOUNT, MadeUp

Host = Callable[[Mapping[str, str]], None]
NORMAL = {
    "cpufreq/scaling_governor": "powersave\n",
    "cpufreq/energy_performance_preference": "balance_performance\n",
    "no_turbo": "0\n",
    "boost": "1\n",
    "power/AC/type": "Mains\n",
    "power/AC/online": "1\n",
    "power/BAT0/type": "Battery\n",
    "power/BAT0/status": "Charging\n",
    "power/mouse/type": "Battery\n",
    "power/mouse/scope": "Device\n",
    "power/mouse/status": "Discharging\n",
}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_up_groups: MadeUp) -> Host:
    """Make up what the kernel tells of this host's clock and power."""

    def make_up(files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    monkeypatch.setattr(cpu_speed_limits, "FREQUENCY", tmp_path / "cpufreq")
    monkeypatch.setattr(cpu_speed_limits, "SUPPLIES", tmp_path / "power")
    monkeypatch.setattr(cpu_speed_limits, "TURBO", {tmp_path / "no_turbo": "1", tmp_path / "boost": "0"})
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    made_up_groups("0::/", V2_MOUNT, {})
    return make_up


@pytest.mark.parametrize("files", [{}, NORMAL], ids=["a virtual machine", "a laptop at its plug"])
def test_most_hosts_are_limited_by_nothing(files: Mapping[str, str], host: Host) -> None:
    host(files)
    assert find_cpu_speed_limits() == ""


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"power/BAT0/status": "Discharging\n"}, "+battery"),
        ({"cpufreq/energy_performance_preference": "power\n"}, "+epp-power"),
        ({"no_turbo": "1\n"}, "+noturbo"),
        ({"boost": "0\n"}, "+noturbo"),
    ],
)
def test_what_keeps_the_clock_down_is_said(files: Mapping[str, str], said: str, host: Host) -> None:
    host({**NORMAL, **files})
    assert find_cpu_speed_limits() == said


@pytest.mark.parametrize(("quota", "said"), [("150000", "+quota1.5"), ("400000", ""), ("800000", "")])
def test_a_quota_is_said_that_pays_for_fewer_cores_than_there_are(
    quota: str, said: str, host: Host, made_up_groups: MadeUp
) -> None:
    made_up_groups("0::/a", V2_MOUNT, {"a/cpu.max": f"{quota} 100000\n"})
    assert find_cpu_speed_limits() == said


class Tracker:
    """What a device told its tracker of itself."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.told: list[Identity] = []

    def update_description(self, identity: Identity) -> None:
        self.identity = identity
        self.told.append(identity)


def test_a_device_whose_host_goes_slower_is_of_another_class_from_its_next_session_on(
    host: Host, tmp_path: Path
) -> None:
    host(NORMAL)
    whole: Any = {"name": "d", "target": '{"kind":"llvm","num-cores":2}', "accelerator": ""}
    identity = detect_host.refresh_host_facts(whole)
    tracker = Tracker(identity)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = DeviceServer(tracker, listener, tmp_path, None, "require", lambda: listener)  # type: ignore[arg-type]
        server.announce_host_changes()
        assert tracker.told == []
        host({"cpufreq/scaling_governor": "performance\n", "power/BAT0/status": "Discharging\n"})
        server.announce_host_changes()
        server.announce_host_changes()
    [now] = tracker.told
    assert read_cpu_governor() == now["governor"] == "performance"
    assert now["host_class"] != identity["host_class"]
    assert now["host_class"].endswith("+battery")


def test_a_kernel_that_gives_a_device_no_orphans_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(measuring_conditions, "prctl", refuse)
    assert isinstance(measuring_conditions.adopt_orphans(), set)
    assert "processes that a session starts may run on after it" in caplog.text


def test_a_gpu_stays_part_of_its_hosts_class(host: Host) -> None:
    host({})
    identity: Any = {"name": "d", "target": "{}", "accelerator": "NVIDIA H100"}
    assert detect_host.refresh_host_facts(identity)["host_class"].endswith("+NVIDIA-H100")


def test_times_of_two_drivers_or_power_limits_of_a_gpu_do_not_compare(host: Host) -> None:
    host({})
    gpu: Any = {"name": "d", "target": "{}", "accelerator": "NVIDIA H100", "gpu_driver": "580.159.04"}
    limited = {**gpu, "gpu_power_limit": "+350W"}
    assert detect_host.refresh_host_facts(gpu)["host_class"].endswith("+NVIDIA-H100+580.159.04")
    assert detect_host.refresh_host_facts(limited)["host_class"].endswith("+NVIDIA-H100+580.159.04+350W")
