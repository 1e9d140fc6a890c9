"""seccomp: which system calls a process and all that it starts can make. What is refused fails with EPERM."""

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from workers.sandbox.kernel import prctl
from workers.sandbox.syscalls import ARCHITECTURES, NEVER, PROGRAMS, SOCKETS, SPECIAL, X86_64

_PR_SET_SECCOMP: Final = 22
_FILTER: Final = 2
# Classic BPF: load a word of the call's description, jump if it is this number or has these bits, answer.
_LOAD, _IF_EQUAL, _IF_BITS, _IF_LARGER, _ANSWER = 0x20, 0x15, 0x45, 0x25, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE: Final = 0x00050000 | errno.EPERM
_ABSENT: Final = 0x00050000 | errno.ENOSYS  # then the C library does it in the older way
_X32: Final = 0x3FFFFFFF  # the largest number of a call that is not of x86_64's other interface
_CLONE_THREAD: Final = 0x00010000
# NEWNS, and NEWCGROUP to NEWNET.
_CLONE_NAMESPACES: Final = 0x0002_0000 | 0x7E00_0000

Instruction = tuple[int, int, int, int]  # what to do, how many to leave out if so and if not, a number


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def refuse(spawns: bool, connects: bool) -> None:
    """Refuse what nobody needs; without `spawns` processes, without `connects` sockets. Raises OSError."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no list of system calls for {machine}")
    code = b"".join(struct.pack("<HBBI", *each) for each in _whole(machine, spawns, connects))
    prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(code) // 8, code)))


def _whole(machine: str, spawns: bool, connects: bool) -> Iterator[Instruction]:
    architecture, column = ARCHITECTURES[machine]
    yield (_LOAD, 0, 0, _ARCHITECTURE)
    yield (_IF_EQUAL, 1, 0, architecture)
    yield (_ANSWER, 0, 0, _KILL)
    yield (_LOAD, 0, 0, _NUMBER)
    if machine == X86_64:
        yield from _if((_IF_LARGER, _X32), _REFUSE)
    refused = NEVER | ({} if spawns else PROGRAMS) | ({} if connects else SOCKETS)
    for number in sorted(numbers[column] for numbers in refused.values() if numbers[column] >= 0):
        yield from _if((_IF_EQUAL, number), _REFUSE)
    special = {name: numbers[column] for name, numbers in SPECIAL.items()}
    yield from _if((_IF_EQUAL, special["clone3"]), _ABSENT)  # its flags lie in memory, where no filter looks
    yield from _judge(special["clone"], _of_clone(spawns))
    yield from _judge(special["prlimit64"], [*_if((_IF_EQUAL, 0), _ALLOW)])  # one's own limits alone
    yield (_ANSWER, 0, 0, _ALLOW)


def _of_clone(spawns: bool) -> Iterator[Instruction]:
    yield from _if((_IF_BITS, _CLONE_NAMESPACES), _REFUSE)
    yield from [(_ANSWER, 0, 0, _ALLOW)] if spawns else _if((_IF_BITS, _CLONE_THREAD), _ALLOW)


def _if(condition: tuple[int, int], answer: int) -> Iterator[Instruction]:
    test, number = condition
    yield (test, 0, 1, number)
    yield (_ANSWER, 0, 0, answer)


def _judge(number: int, by_first_argument: Iterable[Instruction]) -> Iterator[Instruction]:
    """Of this call look at the first argument; what is not allowed then is refused."""
    steps = [(_LOAD, 0, 0, _FIRST_ARGUMENT), *by_first_argument, (_ANSWER, 0, 0, _REFUSE)]
    yield (_IF_EQUAL, 0, len(steps), number)
    yield from steps
