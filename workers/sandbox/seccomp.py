"""seccomp: a list of the system calls that a process and its children may make. All others
fail with EPERM, and calls newer than the list with ENOSYS, as on an older kernel.

The list is `system_calls.toml`.
"""

import ctypes
import errno
import pkgutil
import platform
import signal
import struct
import tomllib
from collections.abc import Iterable, Iterator
from typing import Final

from mallorn.workers.sandbox.syscall import prctl

X86_64, AARCH64 = "x86_64", "aarch64"
ARCHITECTURES: Final = {X86_64: (0xC000003E, 0), AARCH64: (0xC00000B7, 1)}

_GROUPS: Final = ("all", "programs", "gpu", "special")
_LAST_CALL: Final = 469  # `file_setattr` of Linux 6.17
_PR_SET_SECCOMP: Final = 22
_PR_SET_PDEATHSIG: Final = 1  # allowed with SIGKILL only: a process ends with its parent
_FILTER: Final = 2
# Classic BPF: load a word of the call's data; jump if it equals, shares bits or exceeds; answer.
_LOAD, _IF_EQUAL, _IF_BITS, _IF_LARGER, _ANSWER = 0x20, 0x15, 0x45, 0x25, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT, _FIFTH_ARGUMENT = 0, 4, 16, 24, 48
_AF_UNIX, _SOCK_STREAM = 1, 1
_TRUNCATE: Final = "truncate"
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_REFUSE: Final = _ERROR | errno.EPERM
_ABSENT: Final = _ERROR | errno.ENOSYS  # then the C library uses an older call
_ZERO: Final = _ERROR  # without an error: the call does nothing and returns 0
_CLONE_THREAD: Final = 0x00010000
# CLONE_NEWNS, and CLONE_NEWCGROUP to CLONE_NEWNET.
_CLONE_NAMESPACES: Final = 0x0002_0000 | 0x7E00_0000
# ioctl: of the terminals' requests (0x54..), only those that read a size or change a descriptor:
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC.
_HARMLESS_REQUESTS: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x5452)
# prctl: what a process reads, its threads' names, stricter rules for itself, and registers
# of aarch64. Not PR_SCHED_CORE, which takes a whole core.
_PRCTL_OPTIONS: Final = (2, 3, 15, 16, *range(21, 24), 29, 30, 38, 39, 41, 42, *range(50, 57), 0x53564D41)

Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, operand
_TABLES: Final = tomllib.loads((pkgutil.get_data(__package__, "system_calls.toml") or b"").decode())
#: Calls by name, each with its numbers by architecture: those of all sandboxed processes, those
#: that start programs, those for drivers of GPUs, and those that are judged by an argument.
ALLOWED, PROGRAMS, GPU, SPECIAL = (dict[str, list[int]](_TABLES[name]) for name in _GROUPS)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install_syscall_filter(
    spawns: bool, takes_sockets: bool, drives_gpu: bool = False, truncates: bool = True
) -> None:
    """Allow only the system calls that this process needs. Raises OSError if impossible.

    Unless `spawns` is set, it can start no processes. No process can make a socket of a
    network. With `takes_sockets`, `socket` returns descriptor 0 and `connect` returns 0
    without doing anything, so that code that connects uses the socket that is descriptor 0.
    `drives_gpu` allows the sockets that a GPU's driver creates; they cannot be connected.
    Unset `truncates` if Landlock does not restrict `truncate`, which takes any path.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"the seccomp filter supports {', '.join(ARCHITECTURES)}, not {machine}")
    steps = _instructions(machine, spawns, takes_sockets, drives_gpu, truncates)
    code = b"".join(struct.pack("<HBBI", *step) for step in steps)
    prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(code) // 8, code)))


def is_socket_given() -> bool:
    """Return whether this process has a filter with `takes_sockets`."""
    return int(ctypes.CDLL(None).connect(-1, None, 0)) == 0


def _instructions(
    machine: str, spawns: bool, takes_sockets: bool, drives_gpu: bool, truncates: bool
) -> Iterator[Instruction]:
    architecture, column = ARCHITECTURES[machine]
    special = {name: numbers[column] for name, numbers in SPECIAL.items()}
    yield (_LOAD, 0, 0, _ARCHITECTURE)
    yield (_IF_EQUAL, 1, 0, architecture)
    yield (_ANSWER, 0, 0, _KILL)
    yield (_LOAD, 0, 0, _NUMBER)
    yield from _answer_if(_IF_LARGER, _ABSENT, _LAST_CALL)  # also x86_64's x32 calls
    yield from _answer_if(_IF_EQUAL, _ABSENT, special["clone3"])  # flags in memory
    namespaces = _answer_if(_IF_BITS, _REFUSE, _CLONE_NAMESPACES)
    kinds = [(_ANSWER, 0, 0, _ALLOW)] if spawns else _answer_if(_IF_BITS, _ALLOW, _CLONE_THREAD)
    yield from _filter_one_call(special["clone"], [*namespaces, *kinds])
    own_limits = _answer_if(_IF_EQUAL, _ALLOW, 0)
    yield from _filter_one_call(special["prlimit64"], own_limits)
    killed = [(_LOAD, 0, 0, _SECOND_ARGUMENT), *_answer_if(_IF_EQUAL, _ALLOW, signal.SIGKILL)]
    death = [(_IF_EQUAL, 0, 1 + len(killed), _PR_SET_PDEATHSIG), *killed, (_ANSWER, 0, 0, _REFUSE)]
    options = [*death, *_answer_if(_IF_EQUAL, _ALLOW, *_PRCTL_OPTIONS)]
    yield from _filter_one_call(special["prctl"], options)
    harmless = _answer_if(_IF_EQUAL, _ALLOW, *_HARMLESS_REQUESTS)
    terminals = [*_answer_if(_IF_LARGER, _ALLOW, 0x54FF), *_answer_if(_IF_LARGER, _REFUSE, 0x53FF)]
    requests = [*harmless, *terminals, (_ANSWER, 0, 0, _ALLOW)]
    yield from _filter_one_call(special["ioctl"], requests, _SECOND_ARGUMENT)
    if takes_sockets:
        streams = _answer_if(_IF_EQUAL, _ZERO, _SOCK_STREAM)
        yield from _filter_one_call(special["socket"], streams, _SECOND_ARGUMENT)
        yield from _answer_if(_IF_EQUAL, _ZERO, special["connect"])
    elif drives_gpu:
        local_sockets = _answer_if(_IF_EQUAL, _ALLOW, _AF_UNIX)
        yield from _filter_one_call(special["socket"], local_sockets)
    # sends on an existing connection have no address
    high = [(_LOAD, 0, 0, _FIFTH_ARGUMENT + 4), *_answer_if(_IF_EQUAL, _ALLOW, 0)]
    address = [(_IF_EQUAL, 0, len(high), 0), *high]
    yield from _filter_one_call(special["sendto"], address, _FIFTH_ARGUMENT)
    allowed_calls = ALLOWED | (PROGRAMS if spawns else {}) | (GPU if drives_gpu else {})
    if not truncates:
        del allowed_calls[_TRUNCATE]
    numbers = [numbers[column] for numbers in allowed_calls.values()]
    present = sorted(number for number in numbers if number >= 0)
    yield from _answer_if(_IF_EQUAL, _ALLOW, *present)
    yield (_ANSWER, 0, 0, _REFUSE)


def _answer_if(test: int, answer: int, *operands: int) -> Iterator[Instruction]:
    for operand in operands:
        yield (test, 0, 1, operand)
        yield (_ANSWER, 0, 0, answer)


def _filter_one_call(
    number: int, rules: Iterable[Instruction], argument: int = _FIRST_ARGUMENT
) -> Iterator[Instruction]:
    """Yield a system call's filter: `rules` on one argument, else a refusal."""
    steps = [(_LOAD, 0, 0, argument), *rules, (_ANSWER, 0, 0, _REFUSE)]
    yield (_IF_EQUAL, 0, len(steps), number)
    yield from steps
