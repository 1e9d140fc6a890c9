"""Processes forked by a device: one to ask TVM's runtime about itself, one for each session."""

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mallorn.core.errors import HostFault, MallornError

A = TypeVar("A")  # an answer that JSON holds
_PR_SET_PDEATHSIG = 1


def ask_in_fork(question: Callable[[], A]) -> A:
    """Return the answer of a function that runs in a process of its own. Raises HostFault as it does."""
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
        raise MallornError(f"TVM's runtime cannot be used here: {how_it_ended(status)}")
    answer: A
    answer, fault = json.loads(text)
    if fault is not None:
        raise HostFault(fault[0], hint=fault[1])
    return answer


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a child that dies with this process; its pid."""
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()  # Ctrl-C is the parent's to handle
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent_pid:  # it died before the line above
                os._exit(1)
            work()
            os._exit(0)
        finally:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return pid


def how_it_ended(status: int) -> str:
    """Put a wait status in words."""
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def waits_for(pid: int, number: int) -> bool:
    """Whether a process waits in a call for its open file of this number; False where that cannot be seen."""
    try:
        words = Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        return False
    return len(words) > 1 and words[1] == hex(number)
