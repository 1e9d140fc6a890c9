"""A child answers, fails, crashes, hangs and dies without harming its parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mallorn.core.errors import InvalidModel
from workers.children.child import Child
from workers.children.errors import ChildCrashed, ChildFailed, ChildTimeout

MODULE = "tests.unit.children.misbehaving"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def child() -> Iterator[Child]:
    with Child(MODULE, name="tester") as child:
        yield child


def is_running(pid: int) -> bool:
    """Whether a process exists and is not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> bool:
    for _ in range(500):
        if not is_running(pid):
            return True
        time.sleep(0.02)
    return False


def test_it_starts_with_the_first_call_only(child: Child) -> None:
    assert not child.alive
    assert child.call("echo", 20, value={"a": [1, 2.5, None, "é"]}) == {"a": [1, 2.5, None, "é"]}
    assert child.alive


def test_calls_share_one_process(child: Child) -> None:
    assert child.call("pid", 20) == child.call("pid", 20) != os.getpid()


def test_large_payloads_pass_both_ways(child: Child) -> None:
    text = "x" * 5_000_000
    assert child.call("size", 20, text=text) == len(text)
    assert child.call("echo", 20, value=text) == text


def test_an_exception_carries_its_class_and_message(child: Child) -> None:
    with pytest.raises(ChildFailed, match="lost") as caught:
        child.call("fail", 20, message="lost")
    assert caught.value.kind == "KeyError"
    assert child.call("echo", 20, value=1) == 1


def test_an_error_of_ours_keeps_its_class_and_hint(child: Child) -> None:
    with pytest.raises(InvalidModel, match="no such operator") as caught:
        child.call("refuse", 20)
    assert caught.value.hint == "use another"


def test_an_error_that_only_the_child_knows_arrives_as_its_nearest_kin(child: Child) -> None:
    with pytest.raises(InvalidModel, match="Known to this module only"):
        child.call("refuse_oddly", 20)


@pytest.mark.parametrize("method", ["unknown", "unprintable"])
def test_what_cannot_be_answered_is_an_error_not_a_crash(child: Child, method: str) -> None:
    with pytest.raises(ChildFailed):
        child.call(method, 20)
    assert child.alive


def test_a_segfault_is_named_with_the_last_output(child: Child) -> None:
    with pytest.raises(ChildCrashed, match=r"tester died of SIGSEGV[\s\S]*last words"):
        child.call("segfault", 20)


def test_an_exit_is_named_with_its_code(child: Child) -> None:
    with pytest.raises(ChildCrashed, match="exited with code 3"):
        child.call("leave", 20, code=3)


def test_a_module_that_cannot_start_says_why() -> None:
    with Child("no.such.module") as child, pytest.raises(ChildCrashed, match="No module named 'no'"):
        child.call("echo", 20, value=1)


def test_it_starts_again_after_a_crash(child: Child) -> None:
    with pytest.raises(ChildCrashed):
        child.call("segfault", 20)
    assert child.call("echo", 20, value="back") == "back"


def test_an_endless_loop_is_killed(child: Child) -> None:
    pid = child.call("pid", 20)
    with pytest.raises(ChildTimeout, match=r"tester took longer than 0\.1 s"):
        child.call("loop", 0.1)
    assert not is_running(pid)
    assert child.call("pid", 20) != pid


def test_an_abandoned_call_does_not_answer_the_next(child: Child) -> None:
    child.send("echo", value="old")
    child.send("echo", value="new")
    assert child.receive(20) == "new"


def test_what_it_prints_does_not_disturb_the_answers(child: Child) -> None:
    for _ in range(3):
        child.call("chatter", 20, length=800_000)
    assert child.call("echo", 20, value=7) == 7


def test_it_sees_the_environment_given() -> None:
    with Child(MODULE, env={"MALLORN_TEST_WORD": "leaf"}) as child:
        assert child.call("environment", 20, name="MALLORN_TEST_WORD") == "leaf"


def test_memory_beyond_the_limit_is_refused() -> None:
    with Child(MODULE, memory_bytes=1 << 30) as child:
        assert child.call("allocate", 20, length=1 << 20) == 1 << 20
        with pytest.raises(ChildFailed, match="MemoryError"):
            child.call("allocate", 20, length=1 << 31)


def test_it_is_replaced_after_max_calls() -> None:
    with Child(MODULE, max_calls=2) as child:
        pids = [child.call("pid", 20) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_suspended_child_stands_still_until_resumed(child: Child) -> None:
    child.call("pid", 20)
    child.suspend()
    child.send("echo", value=1)
    for _ in range(10):
        time.sleep(0.01)
        assert not child.poll()
    child.resume()
    assert child.receive(20) == 1


def test_a_suspended_child_can_be_killed(child: Child) -> None:
    pid = child.call("pid", 20)
    child.suspend()
    child.kill()
    assert not is_running(pid)


def test_it_dies_with_a_parent_that_was_killed() -> None:
    script = f"""
import time
from workers.children.child import Child
child = Child({MODULE!r})
print(child.call("pid", 20), flush=True)
child.send("loop")
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.send_signal(signal.SIGKILL)
    assert wait_until_gone(pid)


def test_it_outlives_the_thread_that_used_it_first(child: Child) -> None:
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.append(child.call("pid", 20)))
    thread.start()
    thread.join()
    assert child.call("pid", 20) == pids[0]
