"""A child answers, fails, crashes, hangs and dies without harming its parent."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from mallorn.core.errors import InvalidModel, StorageFull
from tests.fixtures.processes import beside, is_running, wait_until_gone
from tests.fixtures.waiting import PATIENCE
from workers.children.child import Child
from workers.children.errors import ChildCrashed, ChildFailed, ChildTimeout

MODULE = "tests.unit.children.misbehaving"


@pytest.fixture
def child() -> Iterator[Child]:
    with Child(MODULE, name="tester") as child:
        yield child


def test_it_starts_with_the_first_call_only(child: Child) -> None:
    assert not child.alive
    assert child.call("echo", PATIENCE, value={"a": [1, 2.5, None, "é"]}) == {"a": [1, 2.5, None, "é"]}
    assert child.alive


def test_calls_share_one_process(child: Child) -> None:
    assert child.call("pid", PATIENCE) == child.call("pid", PATIENCE) != os.getpid()


def test_large_payloads_pass_both_ways(child: Child) -> None:
    text = "x" * 5_000_000
    assert child.call("size", PATIENCE, text=text) == len(text)
    assert child.call("echo", PATIENCE, value=text) == text


def test_an_exception_carries_its_class_and_message(child: Child) -> None:
    with pytest.raises(ChildFailed, match="lost") as caught:
        child.call("fail", PATIENCE, message="lost")
    assert caught.value.kind == "KeyError"
    assert child.call("echo", PATIENCE, value=1) == 1


def test_an_error_of_ours_keeps_its_class_and_hint(child: Child) -> None:
    with pytest.raises(InvalidModel, match="no such operator") as caught:
        child.call("refuse", PATIENCE)
    assert caught.value.hint == "use another"
    assert caught.value.suggest == {"input_shapes": {"x": [1, 3]}}


def test_an_error_that_only_the_child_knows_arrives_as_its_nearest_kin(child: Child) -> None:
    with pytest.raises(InvalidModel, match="Known to this module only"):
        child.call("refuse_oddly", PATIENCE)


def test_a_full_disk_arrives_as_such_and_not_as_some_error(child: Child) -> None:
    with pytest.raises(StorageFull):
        child.call("fill_the_disk", PATIENCE)


@pytest.mark.parametrize("method", ["unknown", "unprintable"])
def test_what_cannot_be_answered_is_an_error_not_a_crash(child: Child, method: str) -> None:
    with pytest.raises(ChildFailed):
        child.call(method, PATIENCE)
    assert child.alive


def test_a_segfault_is_named_with_the_last_output(child: Child) -> None:
    with pytest.raises(ChildCrashed, match=r"tester died of SIGSEGV[\s\S]*last words") as caught:
        child.call("segfault", PATIENCE)
    assert caught.value.died_of is signal.Signals.SIGSEGV


def test_an_exit_is_named_with_its_code(child: Child) -> None:
    with pytest.raises(ChildCrashed, match="exited with code 3"):
        child.call("leave", PATIENCE, code=3)


def test_a_module_that_cannot_start_says_why() -> None:
    with Child("no.such.module") as child, pytest.raises(ChildCrashed, match="No module named 'no'"):
        child.call("echo", PATIENCE, value=1)


def test_it_starts_again_after_a_crash(child: Child) -> None:
    with pytest.raises(ChildCrashed):
        child.call("segfault", PATIENCE)
    assert child.call("echo", PATIENCE, value="back") == "back"


def test_an_endless_loop_is_killed(child: Child) -> None:
    pid = child.call("pid", PATIENCE)
    with pytest.raises(ChildTimeout, match=r"tester took longer than 0\.1 s"):
        child.call("loop", 0.1)
    assert not is_running(pid)
    assert child.call("pid", PATIENCE) != pid


def test_the_time_that_a_start_takes_is_not_the_calls(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 100.0 if child.ready else 0.0)
    monkeypatch.setattr("workers.children.child.time", clock)
    assert child.call("wait", 50, seconds=0.1) == 0.1


def test_an_abandoned_call_does_not_answer_the_next(child: Child) -> None:
    child.send("echo", value="old")
    child.send("echo", value="new")
    assert child.receive(PATIENCE) == "new"


def test_what_it_prints_does_not_disturb_the_answers(child: Child) -> None:
    for _ in range(3):
        child.call("chatter", PATIENCE, length=800_000)
    assert child.call("echo", PATIENCE, value=7) == 7


def test_it_sees_the_environment_given() -> None:
    with Child(MODULE, env={"MALLORN_TEST_WORD": "leaf"}) as child:
        assert child.call("environment", PATIENCE, name="MALLORN_TEST_WORD") == "leaf"


def test_memory_beyond_the_limit_is_refused() -> None:
    with Child(MODULE, memory_bytes=1 << 30) as child:
        assert child.call("allocate", PATIENCE, length=1 << 20) == 1 << 20
        with pytest.raises(ChildFailed, match="MemoryError"):
            child.call("allocate", PATIENCE, length=1 << 31)


def test_it_is_replaced_after_max_calls() -> None:
    with Child(MODULE, max_calls=2) as child:
        pids = [child.call("pid", PATIENCE) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_suspended_child_stands_still_until_resumed(child: Child) -> None:
    child.call("pid", PATIENCE)
    child.suspend()
    child.send("echo", value=1)
    for _ in range(10):
        time.sleep(0.01)
        assert not child.poll()
    child.resume()
    assert child.receive(PATIENCE) == 1


def test_a_suspended_child_can_be_killed(child: Child) -> None:
    pid = child.call("pid", PATIENCE)
    child.suspend()
    child.kill()
    assert not is_running(pid)


def test_it_dies_with_a_parent_that_was_killed() -> None:
    program = f"""
from workers.children.child import Child
child = Child({MODULE!r})
print(child.call("pid", {PATIENCE}), flush=True)
child.send("loop")
"""
    with beside(program) as (parent, said):
        assert is_running(int(said))
        parent.send_signal(signal.SIGKILL)
        wait_until_gone(int(said))


def test_it_outlives_the_thread_that_used_it_first(child: Child) -> None:
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.append(child.call("pid", PATIENCE)))
    thread.start()
    thread.join()
    assert child.call("pid", PATIENCE) == pids[0]
