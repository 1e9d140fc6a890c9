"""Runs a part in a fork of this interpreter, which has already imported the parts' common modules."""

import ctypes
import gc
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

# Fields of /proc/self/stat after the program's name that hold addresses.
_ARGUMENTS, _ARGUMENTS_END, _ENVIRONMENT_END = 45, 46, 48


def can_fork() -> bool:
    """Return whether this process has one thread; other threads' locks would stay locked in a fork."""
    return len(os.listdir("/proc/self/task")) == 1


@dataclass(frozen=True)
class ForkedPart:
    """A `preexec_fn` that runs `main` instead of `command`, and ends with its exit code."""

    main: Callable[[], object]
    command: Sequence[str]
    env: Mapping[str, str]

    def __call__(self) -> NoReturn:
        code = 1
        try:
            # This closes Popen's error pipe, too, so that Popen returns in the parent.
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            gc.enable()  # Popen switches it off while it forks
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.environ.update(self.env)
            tempfile.tempdir = None
            _show_command_line(self.command)
            self.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _show_command_line(command: Sequence[str]) -> None:
    """Show `command` in `ps`: write it over this process's arguments and, if longer, environment."""
    for name, value in os.environ.items():
        os.environ[name] = value  # makes the C library store a copy elsewhere
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end, last = (int(fields[i]) for i in (_ARGUMENTS, _ARGUMENTS_END, _ENVIRONMENT_END))
    words = [os.fsencode(word) for word in command]
    text = b"\0".join(words) + b"\0"
    text = text.ljust(end - start, b"\0") if len(text) <= end - start else b" ".join(words) + b"\0"
    if 0 < start < start + len(text) <= last:
        ctypes.memmove(start, text, len(text))
