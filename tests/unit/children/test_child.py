"""A child answers, fails, crashes, hangs and dies without harming its parent."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from mallorn.core.errors import HostFault, InvalidModel, StorageFull
from mallorn.core.locked_folders import find_excess
from mallorn.core.redaction import hide
from mallorn.core.settings import Settings
from mallorn.workers.sandbox.sandbox import WHOLE
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support
from mallorn.workers.subprocesses import cgroups, child_process
from mallorn.workers.subprocesses.child_process import Child, ProcessorShare
from mallorn.workers.subprocesses.errors import (
    ChildCrashed,
    ChildFailed,
    ChildKilled,
    ChildOutOfMemory,
    ChildStarved,
    ChildTimeout,
)
from mallorn.workers.subprocesses.frame_channel import FRAME_LIMIT_BYTES, Channel, FrameTooLarge
from mallorn.workers.subprocesses.typed_method import collect_handlers
from tests.fixtures.processes import beside, is_running, wait_until_gone
from tests.unit.children.faces import Leaf, Misbehaving, NoSuchModule


@pytest.fixture
def child() -> Iterator[Misbehaving]:
    with Misbehaving(name="tester") as child:
        yield child


def test_it_starts_with_the_first_call_only(child: Misbehaving) -> None:
    assert not child.alive
    assert child.echo(1) == 1
    assert child.alive


def test_values_of_every_kind_are_themselves_on_both_sides(child: Misbehaving) -> None:
    given = [Leaf(), Leaf(missing=3, by_name={"a": (1, 2)})]
    assert child.leaves(given) == given


def test_a_limit_may_depend_on_what_is_asked() -> None:
    assert Misbehaving.sleep.make_call(1.5).limit_sec == 51.5
    assert Misbehaving.sleep.make_call(1.5).with_limit(3.0).limit_sec == 3.0


def test_a_method_cannot_be_missing_on_one_side() -> None:
    with pytest.raises(TypeError, match="'leaves', 'lie'"):
        collect_handlers(Misbehaving, Misbehaving.echo.make_handler(lambda value: value))
    with pytest.raises(TypeError, match="not declared: \\['echo'\\]"):
        collect_handlers(Child, Misbehaving.echo.make_handler(lambda value: value))


def test_what_takes_other_parameters_does_not_answer_a_method() -> None:
    with pytest.raises(TypeError, match="'text'"):
        Misbehaving.echo.make_handler(lambda text: text)


def test_calls_share_one_process(child: Misbehaving) -> None:
    assert child.process() == child.process() != os.getpid()


def test_large_payloads_pass_both_ways(child: Misbehaving) -> None:
    text = "x" * 5_000_000
    assert child.size(text) == len(text)
    assert child.echo(text) == text


def test_an_exception_carries_its_class_and_message(child: Misbehaving) -> None:
    with pytest.raises(ChildFailed, match="lost") as caught:
        child.fail("lost")
    assert caught.value.kind == "KeyError"
    assert child.echo(1) == 1


def test_an_error_of_ours_keeps_its_class_and_hint(child: Misbehaving) -> None:
    with pytest.raises(InvalidModel, match="no such operator") as caught:
        child.refuse()
    assert caught.value.hint == "use another"
    assert caught.value.suggest == {"input_shapes": {"x": [1, 3]}}


def test_an_error_that_only_the_child_knows_arrives_as_its_nearest_kin(child: Misbehaving) -> None:
    with pytest.raises(InvalidModel, match="Known to this module only"):
        child.refuse_oddly()


def test_a_full_disk_arrives_as_such_and_not_as_some_error(child: Misbehaving) -> None:
    with pytest.raises(StorageFull):
        child.fill_the_disk()


def test_an_answer_of_another_type_is_an_error_not_a_crash(child: Misbehaving) -> None:
    with pytest.raises(ChildFailed, match="Expected `int`"):
        child.lie()
    assert child.alive


def test_a_parameter_of_another_type_does_not_leave_its_caller(child: Misbehaving) -> None:
    with pytest.raises(ValueError, match="Expected `str`"):
        child.size(3)  # type: ignore[arg-type]
    assert not child.alive


def test_a_segfault_is_named_with_the_last_output(child: Misbehaving) -> None:
    with pytest.raises(ChildCrashed, match=r"tester died of SIGSEGV[\s\S]*last words") as caught:
        child.segfault()
    assert caught.value.died_of is signal.Signals.SIGSEGV
    assert not isinstance(caught.value, ChildKilled)


def test_a_kill_from_outside_is_told_from_a_death_of_its_own(child: Misbehaving) -> None:
    call = child.begin(Misbehaving.sleep.make_call(60.0))
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildKilled, match="tester died of SIGKILL"):
        call.wait()


def test_a_kill_while_the_kernel_counts_one_for_want_of_memory_is_its_own(
    child: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("oom 7\noom_kill 2\noom_group_kill 0\n")
    monkeypatch.setattr(cgroups, "find_kill_counter", lambda: counter)
    call = child.begin(Misbehaving.sleep.make_call(60.0))
    assert child.pid is not None
    counter.write_text("oom 9\noom_kill 3\noom_group_kill 0\n")
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildOutOfMemory, match="more memory than there is") as caught:
        call.wait()
    assert not isinstance(caught.value, ChildKilled)
    call = child.begin(Misbehaving.sleep.make_call(60.0))
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildKilled):  # the one that was counted is not this one
        call.wait()


def test_want_of_handles_is_the_hosts_fault(child: Misbehaving) -> None:
    with pytest.raises(HostFault, match="too many open files") as caught:
        child.run_out_of_handles()
    assert "ulimit -n" in caught.value.hint


def test_an_exit_is_named_with_its_code(child: Misbehaving) -> None:
    with pytest.raises(ChildCrashed, match="exited with code 3"):
        child.leave(3)


def test_a_module_that_cannot_start_says_why() -> None:
    with NoSuchModule() as child, pytest.raises(ChildCrashed, match="No module named 'no'"):
        child.echo(1)


def test_it_starts_again_after_a_crash(child: Misbehaving) -> None:
    with pytest.raises(ChildCrashed):
        child.segfault()
    assert child.echo("back") == "back"


def test_an_endless_loop_is_killed(child: Misbehaving) -> None:
    pid = child.process()
    with pytest.raises(ChildTimeout, match=r"tester took longer than 0\.2 s"):
        child.loop()
    assert not is_running(pid)
    assert child.process() != pid


def test_a_loop_that_hardly_had_a_processor_was_starved(
    child: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert child.echo("ready") == "ready"
    looks = iter([ProcessorShare(ran_sec=1.0, waited_sec=2.0), ProcessorShare(ran_sec=1.05, waited_sec=2.15)])
    monkeypatch.setattr(ProcessorShare, "of", lambda _pid: next(looks))
    with pytest.raises(ChildStarved, match="it mostly waited for a processor"):
        child.loop()


def test_the_time_that_a_start_takes_is_not_the_calls(
    child: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 100.0 if child.ready else 0.0)
    monkeypatch.setattr("mallorn.workers.subprocesses.pending_call.time", clock)
    assert child.sleep(0.1) == 0.1


def test_an_abandoned_call_does_not_answer_the_next(child: Misbehaving) -> None:
    child.echo.begin("old")
    assert child.echo.begin("new").wait() == "new"


def test_what_it_prints_does_not_disturb_the_answers(child: Misbehaving) -> None:
    for _ in range(3):
        child.chatter(800_000)
    assert child.echo(7) == 7


def test_it_sees_the_environment_given() -> None:
    with Misbehaving(env={"MALLORN_TEST_WORD": "leaf"}) as child:
        assert child.environment("MALLORN_TEST_WORD") == "leaf"


def test_memory_beyond_the_limit_is_refused() -> None:
    with Misbehaving(memory_bytes=1 << 30) as child:
        assert child.allocate(1 << 20) == 1 << 20
        with pytest.raises(ChildFailed, match="MemoryError"):
            child.allocate(1 << 31)


def test_it_is_replaced_after_max_calls() -> None:
    with Misbehaving(max_calls=2) as child:
        pids = [child.process() for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_suspended_child_stands_still_until_resumed(child: Misbehaving) -> None:
    child.process()
    child.suspend()
    pending = child.echo.begin(1)
    for _ in range(10):
        time.sleep(0.01)
        assert not pending.poll()
    child.resume()
    assert pending.wait() == 1


def test_a_suspended_child_can_be_killed(child: Misbehaving) -> None:
    pid = child.process()
    child.suspend()
    child.kill()
    assert not is_running(pid)


def test_it_dies_with_a_parent_that_was_killed() -> None:
    program = """
from tests.unit.children.faces import Misbehaving
child = Misbehaving()
print(child.process(), flush=True)
child.loop.begin()
"""
    with beside(program) as (parent, said):
        assert is_running(int(said))
        parent.send_signal(signal.SIGKILL)
        wait_until_gone(int(said))


def test_it_outlives_the_thread_that_used_it_first(child: Misbehaving) -> None:
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.append(child.process()))
    thread.start()
    thread.join()
    assert child.process() == pids[0]


def test_its_threads_stay_where_this_process_was_put_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, child: Misbehaving
) -> None:
    monkeypatch.delenv("TVM_BIND_THREADS", raising=False)
    assert child.environment("TVM_BIND_THREADS") == "0"
    child.kill()
    monkeypatch.setenv("TVM_BIND_THREADS", "1")
    assert child.environment("TVM_BIND_THREADS") == "1"


def test_no_secret_is_in_its_environment(monkeypatch: pytest.MonkeyPatch, child: Misbehaving) -> None:
    secrets = "MALLORN_DATABASE_URL", "MALLORN_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"
    for name in secrets:
        monkeypatch.setenv(name, "secret")
    assert [child.environment(name) for name in secrets] == [None] * len(secrets)
    assert child.environment("PATH")


def test_it_writes_into_its_room_alone(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    with Misbehaving(room=room) as walled:
        assert walled.environment("TMPDIR") == str(room)
        walled.write(str(room / "mine"))
        if walled.sandbox == WHOLE:
            with pytest.raises(ChildFailed, match="PermissionError"):
                walled.write(str(tmp_path / "others"))


def test_it_reports_the_sandbox_that_it_reached(tmp_path: Path) -> None:
    with Misbehaving(room=tmp_path) as child:
        child.echo(1)
        assert child.sandbox == probe_sandbox_support("best-effort")


def test_a_sandbox_without_walls_around_files_is_never_full(child: Misbehaving) -> None:
    child.echo(1)
    assert "walls around files" in child.sandbox


def test_walls_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mallorn.core.settings.settings", lambda: Settings(sandbox="off"))
    room = tmp_path / "room"
    room.mkdir()
    with Misbehaving(room=room) as free:
        free.write(str(tmp_path / "others"))
        assert free.sandbox == "off"


def frame(head: str, body: bytes = b"") -> bytes:
    whole = head.encode() + b"\n" + body
    return len(whole).to_bytes(8, "big") + whole


TOO_LONG = (FRAME_LIMIT_BYTES + 1).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        pytest.param(TOO_LONG + b"x" * 100_000, "sent more than 256 MiB at once", id="a frame without end"),
        pytest.param(frame("ready") * 2, "sent an invalid answer", id="that it is ready, again and again"),
        pytest.param(frame("odd\xff"), "sent an invalid answer", id="a frame of its own kind"),
    ],
)
def test_a_child_that_floods_or_breaks_the_protocol_is_killed_and_its_work_fails(
    child: Misbehaving, sent: bytes, said: str
) -> None:
    pid = child.process()
    with pytest.raises(ChildCrashed, match=f"tester {said} and was killed"):
        child.send_raw(sent)
    assert not is_running(pid)
    assert child.echo("back") == "back"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(frame("result", b"[" * 100_000), id="no result"),
        pytest.param(frame("error", b"[" * 100_000), id="no error"),
        pytest.param(frame("error", b'{"kind": 3}'), id="an error that lacks its fields"),
    ],
)
def test_an_answer_that_cannot_be_read_is_an_error_of_its_call(child: Misbehaving, sent: bytes) -> None:
    with pytest.raises(ChildFailed, match=r"an unreadable result|cannot be read"):
        child.send_raw(sent)


def test_the_parent_keeps_no_more_of_a_flood_than_one_frame() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours, limit_bytes=1000)
    with theirs:
        theirs.sendall(frame("a", b"x" * 500) * 20)
        assert channel.receive_frame() == ("a", b"x" * 500)
        assert not channel._incoming
        assert [channel.receive_frame() for _ in range(19)] == [("a", b"x" * 500)] * 19
        theirs.sendall((1001).to_bytes(8, "big"))
        with pytest.raises(FrameTooLarge):
            channel.receive_frame()
    channel.close()


def test_no_secret_of_the_parent_comes_back_in_an_error(child: Misbehaving) -> None:
    hide("0123456789abcdef-the-fleets-key")
    with pytest.raises(ChildFailed) as caught:
        child.fail("I read 0123456789abcdef-the-fleets-key")
    assert caught.value.message == "KeyError: 'I read ***'"


def test_a_log_is_emptied_while_a_call_runs(
    child: Misbehaving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child_process, "LOOK_SEC", 0.01)
    monkeypatch.setattr(child_process, "_LIMIT_BYTES", 100)
    pending = child.begin(Misbehaving.wait_for_file.make_call(str(tmp_path / "file")))
    assert child.child_log is not None
    child.child_log.file.write(b"x" * 1000)
    while os.fstat(child.child_log.file.fileno()).st_size > 100:
        assert not pending.poll()
        child.wait(1.0)
    (tmp_path / "file").touch()
    pending.wait()


def test_a_child_that_writes_too_many_files_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "LOOK_SEC", 0.01)
    monkeypatch.setattr(child_process, "find_excess", partial(find_excess, most_files=2))
    with Misbehaving(name="tester", room=tmp_path) as child:
        assert child.echo(1) == 1
        for number in range(3):
            (tmp_path / str(number)).touch()
        with pytest.raises(ChildCrashed, match="tester wrote more than 2 files to its folder and was killed"):
            child.wait_for_file(str(tmp_path / "never"))


def test_all_files_below_a_folder_count_and_links_do_not(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "file").write_bytes(b"x" * (1 << 20))
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 34)
    assert find_excess(tmp_path) == ""
    assert find_excess(tmp_path, most_bytes=1 << 19) == "more than 0 GiB"
    assert find_excess(tmp_path, most_files=3) == "more than 3 files"
