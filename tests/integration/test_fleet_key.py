"""Who does not know the fleet's key registers no device, gets none, and runs nothing on one."""

import json
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from mallorn.core.errors import MallornError, Unavailable
from mallorn.core.fleet_key import FleetKey
from mallorn.core.targets import Target
from mallorn.workers.device.pending_connections import MOST_OF_AN_ADDRESS
from mallorn.workers.device.rpc_handshake import open_session
from mallorn.workers.device.tracker_client import (
    HELLO,
    NO_KEY,
    PUT,
    REFUSED,
    REQUEST,
    RPC_MAGIC,
    RPC_MISMATCH,
    SUMMARY,
    TRACKER_MAGIC,
    UPDATE_INFO,
    TrackerClient,
    receive_exactly,
    tracker_key,
)
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.measure.tracked_devices import Fleet
from tests.fixtures.fleet import TestFleet, running_fleet
from tests.fixtures.users import NOBODY, as_user, only_root
from tests.fixtures.waiting import PATIENCE, wait_for

KEY, OLD, OTHERS = "k" * 32, "o" * 32, "x" * 32


@contextmanager
def keyed_fleet(folder: Path, target: Target) -> Iterator[TestFleet]:
    with running_fleet(folder, KEY) as fleet:
        fleet.start_device(target)
        fleet.wait_free(target)
        yield fleet


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory, local_target: Target) -> Iterator[TestFleet]:
    with keyed_fleet(tmp_path_factory.mktemp("keyed"), local_target) as fleet:
        yield fleet


@pytest.fixture
def keyed(standing: TestFleet, local_target: Target) -> TestFleet:
    """A tracker and a free device that want a key; one for all tests of the module."""
    standing.wait_free(local_target)
    return standing


def taken_with(key: str, fleet: TestFleet, target: Target, wait_sec: float = PATIENCE) -> str:
    """The name of the device that a runner with this key gets."""
    with Runner(key=FleetKey(key)) as runner:
        return runner.take_device(fleet.address, target.text, wait_sec=wait_sec).name


def number(end: socket.socket) -> int:
    return int.from_bytes(receive_exactly(end, 4), "little")


@contextmanager
def connected_to_tracker(fleet: TestFleet) -> Iterator[socket.socket]:
    """A connection to the tracker on which nothing but the magic numbers was said."""
    with socket.create_connection(fleet.settings.tracker_address, PATIENCE) as end:
        end.sendall(TRACKER_MAGIC.to_bytes(4, "little"))
        assert number(end) == TRACKER_MAGIC
        yield end


def send(end: socket.socket, body: bytes) -> None:
    end.sendall(len(body).to_bytes(4, "little") + body)


def bluntly(fleet: TestFleet, message: list[Any]) -> object:
    """What the tracker answers to someone who proves nothing, and that it hangs up then."""
    with connected_to_tracker(fleet) as end:
        send(end, json.dumps(message).encode())
        answer = json.loads(receive_exactly(end, number(end)))
        assert end.recv(1) == b""
    return answer


def test_who_knows_the_key_gets_the_device(keyed: TestFleet, local_target: Target) -> None:
    assert taken_with(KEY, keyed, local_target) == "device"


@pytest.mark.parametrize(
    ("key", "said"),
    [("", "requires the fleet's key"), (OTHERS, "does not know this process's key")],
    ids=["none", "other"],
)
def test_a_worker_without_the_key_is_told(
    keyed: TestFleet, local_target: Target, key: str, said: str
) -> None:
    with pytest.raises(Unavailable, match=said) as caught:
        taken_with(key, keyed, local_target)
    assert "MALLORN_RPC_KEY" in caught.value.hint


def test_a_tracker_that_does_not_know_the_key_is_not_believed(tmp_path: Path) -> None:
    with (
        running_fleet(tmp_path, OTHERS) as fleet,
        pytest.raises(Unavailable, match="does not know this process's key"),
    ):
        TrackerClient(fleet.settings.tracker_address, PATIENCE, FleetKey(KEY))


def test_a_tracker_without_a_key_is_not_believed(lone_tracker: TestFleet) -> None:
    with pytest.raises(Unavailable, match="does not know this process's key"):
        TrackerClient(lone_tracker.settings.tracker_address, PATIENCE, FleetKey(KEY))


@pytest.mark.parametrize(
    "message",
    [
        pytest.param([SUMMARY], id="the list"),
        pytest.param([REQUEST, "mallorn-x", "", 1], id="a device"),
        pytest.param([PUT, "mallorn-x", [1, "mallorn-x:1"], "127.0.0.1"], id="an offer"),
        pytest.param([UPDATE_INFO, {"key": "server:mallorn-x", "addr": ["h", 1]}], id="words"),
    ],
)
def test_the_tracker_answers_nothing_before_a_proof(keyed: TestFleet, message: list[Any]) -> None:
    assert bluntly(keyed, message) == REFUSED
    assert [device.endpoint.name for device in Fleet(keyed.settings).devices()] == ["device"]


def test_a_peer_that_proves_nothing_is_greeted_once(keyed: TestFleet) -> None:
    with connected_to_tracker(keyed) as end:
        send(end, json.dumps([HELLO, "a"]).encode())
        assert len(json.loads(receive_exactly(end, number(end)))) == 3
        send(end, json.dumps([HELLO, "b"]).encode())
        assert json.loads(receive_exactly(end, number(end))) == REFUSED
        assert end.recv(1) == b""


def test_an_overheard_match_key_opens_no_session(keyed: TestFleet, local_target: Target) -> None:
    with TrackerClient(keyed.settings.tracker_address, PATIENCE, FleetKey(KEY)) as client:
        offer = client.request_device(tracker_key(local_target), PATIENCE)
    assert offer is not None
    host, port, match_key = offer
    words = f"client:{match_key}".encode()
    with socket.create_connection((host, port), PATIENCE) as end:
        end.sendall(RPC_MAGIC.to_bytes(4, "little") + len(words).to_bytes(4, "little") + words)
        assert number(end) == RPC_MISMATCH
    assert keyed.executions() == []


def test_a_device_without_the_key_cannot_register(tmp_path: Path, local_target: Target) -> None:
    with running_fleet(tmp_path, KEY) as fleet:
        for key in ("", OTHERS):
            fleet.start_device(local_target, key=key)
        fleet.start_device(local_target, name="ours")
        fleet.wait_free(local_target)
        assert [device.endpoint.name for device in Fleet(fleet.settings).devices()] == ["ours"]


def test_what_answers_in_a_devices_place_is_not_believed(tmp_path: Path, local_target: Target) -> None:
    imports = (
        "from mallorn.core.fleet_key import FleetKey\nfrom mallorn.workers.device.key_agent import KeyAgent\n"
    )
    other = f"{imports}other = [FleetKey({OTHERS!r})]\n"
    with running_fleet(tmp_path, KEY) as fleet:
        fleet.start_device(local_target, before=f"{other}KeyAgent.derive_session_keys = lambda *_: other\n")
        fleet.wait_free(local_target)
        with pytest.raises(Unavailable, match="at the device's address does not have our fleet's key"):
            taken_with(KEY, fleet, local_target)
        assert fleet.executions() == []


def test_a_key_is_changed_host_by_host(tmp_path: Path, local_target: Target) -> None:
    with running_fleet(tmp_path, f"{OLD},{KEY}") as fleet:
        fleet.start_device(local_target, key=f"{KEY},{OLD}")
        fleet.wait_free(local_target)
        assert taken_with(f"{OLD},{KEY}", fleet, local_target) == "device"


def test_noise_costs_a_device_nothing(keyed: TestFleet, local_target: Target) -> None:
    host, _, port = Fleet(keyed.settings).find_device(local_target).info.address.rpartition(":")
    magic = RPC_MAGIC.to_bytes(4, "little")
    long, torn = magic + b"\xff\xff\xff\x7f", magic + b"\2\0\0\0\xff\xfe"
    for noise in (b"", b"\0" * 8, b"GET / HTTP/1.1\r\n\r\n", long, torn):
        with socket.create_connection((host, int(port)), PATIENCE) as end:
            end.sendall(noise)
            with suppress(OSError):  # it has hung up already
                end.shutdown(socket.SHUT_WR)
                end.recv(16)
    assert taken_with(KEY, keyed, local_target) == "device"


def memory(pid: int) -> Iterator[bytes]:
    """All that a process holds, piece by piece."""
    with Path(f"/proc/{pid}/mem").open("rb", 0) as mem:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end = (int(each, 16) for each in line.split()[0].split("-"))
            with suppress(OSError, OverflowError):  # what the kernel keeps for itself, or nobody may read
                mem.seek(start)
                yield mem.read(end - start)


def has(pid: int, key: str) -> bool:
    """Whether it has the key in its memory; one that nobody may look into is taken to have it."""
    try:
        return any(key.encode() in piece for piece in memory(pid))
    except PermissionError:
        return True


def test_neither_a_session_nor_what_it_is_forked_from_has_the_key(
    tmp_path: Path, local_target: Target
) -> None:
    key = secrets.token_hex(32)
    with running_fleet(tmp_path, key) as fleet:
        fleet.start_device(local_target)
        fleet.wait_free(local_target)
        with Runner(key=FleetKey(key)) as runner:
            runner.take_device(fleet.address, local_target.text, wait_sec=PATIENCE)
            device = psutil.Process(fleet.device.process.pid)
            keeper, session = sorted(device.children(), key=lambda each: each.create_time())
            assert [has(each.pid, key) for each in (keeper, device, session)] == [True, False, False]


def test_a_device_whose_keeper_is_gone_ends_and_may_be_started_again(
    tmp_path: Path, local_target: Target
) -> None:
    with keyed_fleet(tmp_path, local_target) as fleet:
        (keeper,) = psutil.Process(fleet.device.process.pid).children()
        keeper.kill()

        def ends_at_a_session() -> bool:
            with suppress(MallornError):
                taken_with(KEY, fleet, local_target, wait_sec=2)
            return fleet.device.process.poll() is not None

        wait_for(ends_at_a_session, "the device's end")
        assert fleet.device.process.returncode != 0
        fleet.start_device(local_target)
        assert taken_with(KEY, fleet, local_target) == "device"


@contextmanager
def flood(address: tuple[str, int], magic: int) -> Iterator[None]:
    """Many connections of another host that greet and say no more; one that is closed comes again."""
    stop = threading.Event()

    def hold() -> None:
        while not stop.is_set():
            with suppress(OSError), socket.create_connection(address, 1, ("127.0.0.2", 0)) as end:
                end.settimeout(0.2)
                end.sendall(magic.to_bytes(4, "little"))
                while not stop.is_set() and _stands(end):
                    pass
            stop.wait(0.05)  # here they share their processors with what they flood

    threads = [threading.Thread(target=hold) for _ in range(2 * MOST_OF_AN_ADDRESS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _stands(end: socket.socket) -> bool:
    try:
        return end.recv(16) != b""
    except TimeoutError:
        return True


def test_a_flood_of_silence_keeps_no_honest_worker_out(keyed: TestFleet, local_target: Target) -> None:
    host, _, port = Fleet(keyed.settings).find_device(local_target).info.address.rpartition(":")
    tracker = keyed.settings.tracker_address
    with flood((host, int(port)), RPC_MAGIC), flood(tracker, TRACKER_MAGIC):
        assert taken_with(KEY, keyed, local_target) == "device"


@only_root
def test_a_tracker_without_a_key_admits_no_other_user_of_the_machine(lone_tracker: TestFleet) -> None:
    def connect() -> None:
        with connected_to_tracker(lone_tracker):
            pass

    assert as_user(NOBODY, connect) == 1
    with connected_to_tracker(lone_tracker):
        pass


@only_root
def test_a_device_without_a_key_opens_no_session_for_another_user(
    fleet: TestFleet, local_target: Target
) -> None:
    with TrackerClient(fleet.settings.tracker_address, PATIENCE, NO_KEY) as client:
        offer = client.request_device(tracker_key(local_target), PATIENCE)
    assert offer is not None

    def open_stolen_session() -> None:
        with open_session((offer[0], offer[1]), offer[2], NO_KEY, PATIENCE):
            pass

    assert as_user(NOBODY, open_stolen_session) == 1
    open_stolen_session()


def test_without_a_key_the_tracker_of_another_user_is_not_believed(
    lone_tracker: TestFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mallorn.workers.device.tracker_client.connected_uid", lambda end: 4242)
    with pytest.raises(Unavailable, match="belongs to user 4242"):
        TrackerClient(lone_tracker.settings.tracker_address, PATIENCE, NO_KEY)


def test_nothing_is_said_without_a_key_where_none_is_wanted(lone_tracker: TestFleet) -> None:
    with TrackerClient(lone_tracker.settings.tracker_address, PATIENCE, NO_KEY) as client:
        assert client.summary()["server_info"] == []
