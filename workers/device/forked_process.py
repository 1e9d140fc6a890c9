"""Processes that a device forks: to query TVM's runtime, and one for each session."""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mallorn.core.errors import HostFault, MallornError
from mallorn.workers.subprocesses.child_main import die_with_parent

A = TypeVar("A")  # type of an answer; JSON can represent it


def ask_in_fork(question: Callable[[], A]) -> A:
    """Run `question` in a forked process and return its result. Raises the HostFault that
    `question` raised, or MallornError if the process ended without an answer."""
    reader, writer = os.pipe()

    def answer_or_fault() -> None:
        try:
            text = json.dumps([question(), None])
        except HostFault as fault:
            text = json.dumps([None, [fault.message, fault.hint]])
        os.write(writer, text.encode())

    pid = fork(answer_or_fault)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    status = os.waitpid(pid, 0)[1]
    if status != 0:
        raise MallornError(f"TVM's runtime cannot be used here: {describe_exit(status)}")
    answer: A
    answer, fault = json.loads(text)
    if fault is not None:
        raise HostFault(fault[0], hint=fault[1])
    return answer


def fork(work: Callable[[], object], *, new_session: bool = True) -> int:
    """Run `work` in a child that dies with this process and has empty input. Return its
    pid. Without a new session, signals to this process's group reach the child, too."""
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            if new_session:
                os.setsid()  # only the parent handles Ctrl-C
            for number in (signal.SIGTERM, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            die_with_parent(parent_pid)
            work()
            os._exit(0)
        finally:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return pid


def describe_exit(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def is_waiting_on_descriptor(pid: int, number: int) -> bool:
    """Return whether a process is known to wait in a system call on descriptor `number`."""
    try:
        words = Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        return False
    return len(words) > 1 and words[1] == hex(number)
