"""A device outlives whatever runs on it, and its own log knows every execution."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mallorn.core.errors import InvalidTarget, NoDevice, Unavailable
from mallorn.core.host_id import SEPARATE_LOCKS
from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target, parse_target
from mallorn.workers.device.detect_host import available_cores, read_host_facts
from mallorn.workers.device.device_class import DeviceClass, Endpoint
from mallorn.workers.device.prepare_session import set_runtime_environment
from mallorn.workers.device.session_gateway import SessionGateway
from mallorn.workers.device.tracker_client import RPC_MAGIC, RPC_MISMATCH, TrackerClient, tracker_key
from mallorn.workers.host.host_lock import lock_identity
from mallorn.workers.interfaces.device_runner import LibraryRun, Runner
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.measure.tracked_devices import Fleet
from mallorn.workers.tvm.sessions import remote_device
from mallorn.workers.tvm.sessions.remote_device import CandidateUnheard, RemoteDevice
from tests.fixtures.fleet import Subject, TestFleet, with_cores
from tests.fixtures.waiting import PATIENCE, wait_for

EVALUATOR = EvaluatorOptions(number=1, repeat=1, min_repeat_ms=0)
ARGS = Arguments((Tensor("TENSOR", "float32", (64, 64)),) * 3)
VALUES = np.random.default_rng(0).random((64, 64), dtype=np.float32)


@pytest.fixture
def runner(standing_runner: Runner) -> Iterator[Runner]:
    """A process that holds no device; one for all tests of the module."""
    yield standing_runner
    standing_runner.release_devices()


def take(runner: Runner, fleet: TestFleet, target: Target, **how: Any) -> Endpoint:
    """Take a device; who it is."""
    return runner.take_device(fleet.address, target.text, **how)


def run(
    runner: Runner, fleet: TestFleet, target: Target, artifact: Path, key: str, timeout_sec: float = 60
) -> LibraryRun:
    call = Runner.time_candidate.make_call(
        fleet.address, target.text, str(artifact), ARGS, EVALUATOR, "fixed", key, timeout_sec, 0.0
    )
    return runner.ask(call.with_limit(2 * PATIENCE))


def test_a_device_says_who_it_is(fleet: TestFleet, local_target: Target, runner: Runner) -> None:
    identity = take(runner, fleet, local_target)
    host = read_host_facts()
    assert identity.name == "device"
    assert (identity.host_id, identity.host_class) == (host["host_id"], host["host_class"])
    assert Fleet(fleet.settings).find_device(local_target).info.address == identity.info.address
    assert identity.info.lock_file == lock_identity()


def test_a_device_says_once_that_a_builder_of_its_host_shares_no_locks(
    lone_tracker: TestFleet,
    local_target: Target,
    runner: Runner,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    elsewhere = f"import os; os.environ['MALLORN_HOST_FOLDER'] = {str(tmp_path)!r}\n"
    lone_tracker.start_device(local_target, before=elsewhere)
    lone_tracker.wait_free(local_target)
    take(runner, lone_tracker, local_target)
    lone_tracker.lose_session()
    lone_tracker.wait_free(local_target)
    take(runner, lone_tracker, local_target)
    assert capfd.readouterr().err.count(SEPARATE_LOCKS) == 1


@pytest.mark.parametrize("cores", sorted({1, available_cores()}))
def test_tvm_runs_as_many_threads_as_the_target_has_cores(
    lone_tracker: TestFleet, local_target: Target, runner: Runner, cores: int
) -> None:
    target = with_cores(local_target, cores)
    lone_tracker.start_device(target)
    lone_tracker.wait_free(target)
    assert take(runner, lone_tracker, target).threads == cores


UNDER_A_MASK = """
import os
os.sched_setaffinity(0, last := {max(os.sched_getaffinity(0))})
from mallorn.core.targets import parse_target
from mallorn.workers.device.prepare_session import set_runtime_environment
from mallorn.workers.device.session_gateway import SessionGateway
set_runtime_environment(parse_target({"kind": "llvm", "num-cores": 1}))
from mallorn.workers.device.prepare_session import runtime_facts
assert runtime_facts(parse_target({"kind": "llvm", "num-cores": 1}))["threads"] == 1
assert os.sched_getaffinity(0) == last, os.sched_getaffinity(0)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="every processor is the first")
def test_a_device_computes_where_its_operator_put_it() -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TVM_")}
    command = [sys.executable, "-c", UNDER_A_MASK]
    done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_device_loads_no_compiler(fleet: TestFleet) -> None:
    maps = Path(f"/proc/{fleet.device.process.pid}/maps").read_text()
    assert "libtvm_runtime" in maps
    assert "libtvm_compiler" not in maps


def test_a_target_with_more_cores_than_the_host_is_refused(local_target: Target) -> None:
    with pytest.raises(InvalidTarget, match="cores"):
        set_runtime_environment(with_cores(local_target, available_cores() + 1))


def test_two_devices_of_one_host_do_not_time_at_once(
    lone_tracker: TestFleet, local_target: Target, subject: Subject, runner: Runner
) -> None:
    other = parse_target({**local_target.attrs, "mcpu": "x86-64-v2"})
    for target, name in ((local_target, "whole"), (other, "older")):
        lone_tracker.start_device(target, name)
        lone_tracker.wait_free(target)
    with Runner(name="second runner") as second:
        take(runner, lone_tracker, local_target, hold=True)
        with pytest.raises(Unavailable, match="other jobs timed candidates on the device's host"):
            take(second, lone_tracker, other, wait_sec=0.1, hold=True)
        assert run(runner, lone_tracker, local_target, subject.harmful("double"), "a").outcome is Outcome.OK
        take(second, lone_tracker, other, hold=True)
        lone_tracker.lose_session()  # a candidate that dies does not keep the others waiting
        take(runner, lone_tracker, local_target, hold=True)


def test_every_execution_is_in_the_devices_log(
    fleet: TestFleet, local_target: Target, runner: Runner, subject: Subject
) -> None:
    for key in ("a", "b", "a"):
        assert run(runner, fleet, local_target, subject.harmful("double"), key).outcome is Outcome.OK
    assert fleet.executions() == ["a", "b", "a"]


def test_a_session_goes_before_other_programs_wherever_its_host_lets_it(
    fleet: TestFleet, local_target: Target, runner: Runner, subject: Subject
) -> None:
    """Also behind the walls, where no priority changes: beside one program every time would be a bound."""
    ask = "from mallorn.workers.device.prepare_session import raise_priority; print(raise_priority())"
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    measured = run(runner, fleet, local_target, subject.harmful("double"), "first")
    assert measured.disturbance is not None
    assert str(measured.disturbance.has_priority) == told.strip()


@pytest.fixture
def outputs(
    fleet: TestFleet, local_target: Target, runner: Runner, subject: Subject, tmp_path: Path
) -> Callable[[str], Any]:
    """What a harmful library makes of VALUES."""

    def run_outputs(hazard: str) -> Any:
        np.savez(tmp_path / "in.npz", a=VALUES, b=VALUES, c=np.zeros_like(VALUES))
        call = Runner.run_and_save_arrays.make_call(
            tracker=fleet.address,
            target=local_target.text,
            artifact=str(subject.harmful(hazard)),
            inputs=str(tmp_path / "in.npz"),
            outputs=str(tmp_path / "out.npz"),
            candidate_key="check",
            timeout_sec=60,
        )
        assert runner.ask(call.with_limit(2 * PATIENCE)).outcome is Outcome.OK
        return np.load(tmp_path / "out.npz")["c"]

    return run_outputs


def test_outputs_come_back_for_the_numeric_check(outputs: Callable[[str], Any]) -> None:
    np.testing.assert_array_equal(outputs("double"), VALUES * 2)


def test_what_a_candidate_reads_and_never_wrote_is_no_zero(outputs: Callable[[str], Any]) -> None:
    """Zeros would make it right here, and wrong in a model, where memory was used before."""
    found = outputs("half_written")
    np.testing.assert_array_equal(found[:32], VALUES[:32])
    assert np.abs(found[32:]).min() > 1e30


@pytest.mark.parametrize(
    ("hazard", "deadline_sec", "outcome", "text"),
    [
        ("run_loop", 1, "run_timeout", "did not return in time"),
        ("run_segfault", 60, "run_error", "SIGSEGV"),
        ("run_error", 60, "run_error", "no.such.function"),
    ],
)
def test_a_candidate_that_does_harm_costs_its_own_session_only(
    fleet: TestFleet,
    local_target: Target,
    runner: Runner,
    subject: Subject,
    hazard: str,
    deadline_sec: float,
    outcome: str,
    text: str,
) -> None:
    harmed = run(runner, fleet, local_target, subject.harmful(hazard), "harmful", deadline_sec)
    assert harmed.outcome == outcome
    assert text in harmed.error
    assert run(runner, fleet, local_target, subject.harmful("double"), "next").outcome is Outcome.OK
    assert fleet.executions() == ["harmful", "next"]


def test_a_stalled_network_is_not_the_candidates_time_out(
    fleet: TestFleet, local_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client says nothing after it has begun: so a session hears it when the network stalls."""
    with SessionGateway().connect_runner() as end:
        monkeypatch.setattr(remote_device, "_gateway", lambda: end)
        device = RemoteDevice(fleet.settings.tracker_address, local_target, PATIENCE)

        def stall() -> None:
            wait_for(lambda: not fleet.sessions(), "the device to end the session at its deadline")
            device.call("mallorn.load")

        with pytest.raises(CandidateUnheard) as caught:
            device.attempt("unheard", 1.0, stall)
        assert caught.value.outcome is Outcome.WORKER_LOST
        device.close()
    fleet.wait_free(local_target)


def test_a_candidate_whose_client_died_is_ended(
    fleet: TestFleet, local_target: Target, subject: Subject
) -> None:
    library = str(subject.harmful("run_loop"))
    with Runner(name="dying runner") as runner:
        take(runner, fleet, local_target)
        runner.time_candidate.begin(
            fleet.address, local_target.text, library, ARGS, EVALUATOR, "fixed", "endless", 600, 0.0
        )
        wait_for(fleet.executions, "the candidate to begin")
        runner.kill()
    fleet.wait_free(local_target)


def test_a_restarted_tracker_finds_the_device_again(fleet: TestFleet, local_target: Target) -> None:
    port = fleet.tracker.port
    fleet.tracker.kill()
    fleet.start_tracker(port)
    fleet.wait_free(local_target)


def test_a_busy_device_is_still_in_the_list(fleet: TestFleet, local_target: Target, runner: Runner) -> None:
    assert [device.busy for device in Fleet(fleet.settings).devices()] == [False]
    take(runner, fleet, local_target)
    assert [device.busy for device in Fleet(fleet.settings).devices()] == [True]
    with TrackerClient(fleet.settings.tracker_address) as client:
        assert client.summary()["queue_info"] == {tracker_key(local_target): {"free": 0, "pending": 0}}
    runner.release_devices()
    fleet.wait_free(local_target)


@pytest.mark.parametrize(
    "about",
    [{}, None, {"target": "{"}, {"target": "cuda"}, {"target": '{"kind":"llvm"}'}, {"threads": float("inf")}],
)
def test_a_device_that_nobody_can_read_harms_no_other(fleet: TestFleet, about: Any) -> None:
    with TrackerClient(fleet.settings.tracker_address) as other:
        place = {"key": "server:mallorn-x", "addr": ["127.0.0.1", 1], "busy": False}
        other.send_description({**place, "mallorn": about})
        assert [device.endpoint.name for device in Fleet(fleet.settings).devices()] == ["device"]


def test_who_says_more_than_there_is_room_for_is_turned_away(fleet: TestFleet) -> None:
    """One such word more, and no client could read the list of all."""
    with TrackerClient(fleet.settings.tracker_address) as other:
        place = {"key": "server:mallorn-x", "addr": ["127.0.0.1", 1], "busy": False}
        with suppress(Unavailable):  # the door may be closed before the answer is read
            other.send_description({**place, "mallorn": {"name": "x" * 10_000_000}})
        with pytest.raises(Unavailable):
            other.list_pending_match_keys()
    assert [device.endpoint.name for device in Fleet(fleet.settings).devices()] == ["device"]


def test_a_device_waits_for_its_turn(fleet: TestFleet, local_target: Target, runner: Runner) -> None:
    take(runner, fleet, local_target)
    with Runner() as other:
        with pytest.raises(Unavailable, match="busy"):
            take(other, fleet, local_target, wait_sec=0.2)
        runner.release_devices()
        assert take(other, fleet, local_target).name == "device"


def test_a_client_without_the_trackers_key_is_turned_away(fleet: TestFleet, local_target: Target) -> None:
    host, _, port = Fleet(fleet.settings).find_device(local_target).info.address.rpartition(":")
    key = f"client:{tracker_key(local_target)}:guess".encode()
    with socket.create_connection((host, int(port)), PATIENCE) as end:
        end.sendall(RPC_MAGIC.to_bytes(4, "little") + len(key).to_bytes(4, "little") + key)
        assert int.from_bytes(end.recv(4), "little") == RPC_MISMATCH
        assert end.recv(1) == b""
    fleet.wait_free(local_target)


def test_a_device_is_offered_again_when_its_client_never_comes(
    fleet: TestFleet, local_target: Target
) -> None:
    with TrackerClient(fleet.settings.tracker_address) as client:
        assert client.request_device(tracker_key(local_target), PATIENCE) is not None
    with TrackerClient(fleet.settings.tracker_address) as client:
        assert client.request_device(tracker_key(local_target), PATIENCE) is not None


def test_no_device_and_no_tracker_are_told_apart(
    lone_tracker: TestFleet, local_target: Target, runner: Runner
) -> None:
    with pytest.raises(NoDevice):
        take(runner, lone_tracker, local_target)
    with pytest.raises(NoDevice):
        Fleet(lone_tracker.settings).find_device(local_target)
    lone_tracker.tracker.kill()
    with pytest.raises(Unavailable, match="tracker"):
        take(runner, lone_tracker, local_target)


ANOTHER_CLASS = """
from mallorn.workers.device import detect_host
host = detect_host.read_host_facts
detect_host.read_host_facts = lambda: {**host(), "host_class": "another"}
"""
#: As the tracker was before clients could ask for a class.
OLD_TRACKER = """
from mallorn.workers.device.authenticated_tracker import Tracker
Tracker.ask = lambda self, key, client, wanted, ask=Tracker.ask: ask(self, key, client, "")
"""


def both_classes(fleet: TestFleet, target: Target) -> DeviceClass:
    """Device `a` of another class, and `b` of this host's, which is returned."""
    for name, before in (("a", ANOTHER_CLASS), ("b", "")):
        fleet.start_device(target, name=name, before=before)
    devices = Fleet(fleet.settings).devices
    wait_for(lambda: len(devices()) == 2, "both devices")
    return next(each.endpoint.device_class for each in devices() if each.endpoint.name == "b")


def test_a_client_gets_a_device_of_the_class_that_it_asks_for(
    lone_tracker: TestFleet, local_target: Target, runner: Runner
) -> None:
    here = both_classes(lone_tracker, local_target)
    another = here._replace(host_class="another")
    for like, name in ((another, "a"), (here, "b"), (another, "a")):
        assert take(runner, lone_tracker, local_target, like=like).name == name
    assert take(runner, lone_tracker, local_target).name == "a"  # who asks for none keeps what is held
    with pytest.raises(NoDevice, match="that measured this job's times"):
        take(runner, lone_tracker, local_target, like=here._replace(tvm_version="0"))


def test_a_tracker_of_an_older_version_gives_no_times_of_another_class(
    lone_tracker: TestFleet, local_target: Target, runner: Runner
) -> None:
    lone_tracker.tracker.kill()
    lone_tracker.start_tracker(before=OLD_TRACKER)
    like = both_classes(lone_tracker, local_target)

    def taken() -> bool:
        try:
            return take(runner, lone_tracker, local_target, like=like).name == "b"
        except Unavailable:  # the tracker's choice; it waits behind the other now
            return False

    wait_for(taken, "the device of the class")


#: Which address this host has lies in a file.
MOVING = """
from pathlib import Path
from mallorn.workers.device import private_sockets
here = Path({file!r})
private_sockets.private_address = lambda host: here.read_text()
private_sockets.is_own_address = lambda address: address == here.read_text()
"""


def test_a_device_whose_host_moves_offers_itself_at_the_new_address_and_at_none_without_one(
    lone_tracker: TestFleet, local_target: Target, runner: Runner, tmp_path: Path
) -> None:
    here = tmp_path / "address"

    def addresses() -> list[str]:
        devices = Fleet(lone_tracker.settings).devices()
        return [each.endpoint.info.address.rpartition(":")[0] for each in devices]

    here.write_text("127.0.0.1")
    lone_tracker.start_device(local_target, before=MOVING.format(file=str(here)))
    wait_for(lambda: addresses() == ["127.0.0.1"], "the device")
    for address, told in (("127.0.0.2", ["127.0.0.2"]), ("192.0.2.1", []), ("127.0.0.3", ["127.0.0.3"])):
        here.write_text(address)
        wait_for(lambda told=told: addresses() == told, f"the device at {told}")  # type: ignore[misc]
    assert take(runner, lone_tracker, local_target).info.address.startswith("127.0.0.3:")


def test_a_device_that_is_not_where_it_says_it_is_costs_its_client_nothing_but_a_moment(
    lone_tracker: TestFleet, local_target: Target, runner: Runner
) -> None:
    fleet = lone_tracker
    fleet.start_device(local_target)
    fleet.wait_free(local_target)
    endpoint = Fleet(fleet.settings).find_device(local_target)
    take(runner, fleet, local_target)  # the only other one
    about = {"key": f"server:{tracker_key(local_target)}", "addr": ["127.0.0.1", 1], "busy": False}
    told = {**endpoint.info.model_dump(), "name": "moved", "target": local_target.text, "host_id": "h"}
    kind = {"host_class": endpoint.host_class, "tvm_version": endpoint.tvm_version, "threads": 1}
    with TrackerClient(fleet.settings.tracker_address) as moved, Runner(name="other") as other:
        moved.send_description({**about, "mallorn": told | kind})
        moved.offer_device(tracker_key(local_target), "127.0.0.1", 1, f"{tracker_key(local_target)}:gone")
        with pytest.raises(Unavailable, match="out of reach"):
            take(other, fleet, local_target, wait_sec=0.5)
        runner.release_devices()
        assert take(other, fleet, local_target).name == "device"
