"""seccomp: limits the system calls of a process and its children. Refused calls fail with
EPERM.

Each entry is a call's name, its number on x86_64 and its number on aarch64 (-1 if it has no
such call). The lists hold calls to refuse, by what they affect; options allow some.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from mallorn.workers.sandbox.syscall import prctl

X86_64, AARCH64 = "x86_64", "aarch64"
ARCHITECTURES: Final = {X86_64: (0xC000003E, 0), AARCH64: (0xC00000B7, 1)}

_OTHER_PROCESSES: Final = """
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, pidfd_getfd 438 438,
pidfd_send_signal 424 424, kcmp 312 272, move_pages 279 239, migrate_pages 256 238, setpriority 141 140,
ioprio_set 251 30, sched_setscheduler 144 119, sched_setparam 142 118, sched_setattr 314 274,
shmget 29 194, shmat 30 196, msgget 68 186, semget 64 190, mq_open 240 180
"""
# Landlock has no rights for these calls.
_FILES_OF_OTHERS: Final = """
chmod 90 -1, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -1, fchown 93 55, lchown 94 -1,
fchownat 260 54, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14,
lremovexattr 198 15, fremovexattr 199 16, name_to_handle_at 303 264, open_by_handle_at 304 265,
mknod 133 -1, mknodat 259 33,
utime 132 -1, utimes 235 -1, futimesat 261 -1, utimensat 280 88
"""
_KERNEL: Final = """
bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, keyctl 250 219, add_key 248 217,
request_key 249 218, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427,
mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, move_mount 429 429, open_tree 428 428,
fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, unshare 272 97,
setns 308 268, init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104,
kexec_file_load 320 294, reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60,
syslog 103 116, iopl 172 -1, ioperm 173 -1, settimeofday 164 170, clock_settime 227 112,
adjtimex 159 171, clock_adjtime 305 266, sethostname 170 161, setdomainname 171 162
"""
# A process that cannot leave its process group is killed with it.
_ESCAPES: Final = "setsid 112 157, setpgid 109 154"
_PROGRAMS: Final = "fork 57 -1, vfork 58 -1, execve 59 221, execveat 322 281"
_SOCKETS: Final = "socket 41 198"  # socketpair is allowed: it reaches no other process
# Calls that connect a socket to others; `sendto` does so if it has an address.
_CONVERSATIONS: Final = "connect 42 203, sendmsg 46 211, sendmmsg 307 269"
# Calls that are judged by an argument, except clone3.
_SPECIAL: Final = "clone 56 220, clone3 435 435, prlimit64 302 261, sendto 44 206"
_PR_SET_SECCOMP: Final = 22
_FILTER: Final = 2
# Classic BPF: load a word of the call's data; jump if it equals, shares bits or exceeds; answer.
_LOAD, _IF_EQUAL, _IF_BITS, _IF_LARGER, _ANSWER = 0x20, 0x15, 0x45, 0x25, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _FIFTH_ARGUMENT = 0, 4, 16, 48
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE: Final = 0x00050000 | errno.EPERM
_ABSENT: Final = 0x00050000 | errno.ENOSYS  # then the C library uses the older call
_X32: Final = 0x3FFFFFFF  # calls with larger numbers belong to x86_64's x32 interface
_CLONE_THREAD: Final = 0x00010000
# CLONE_NEWNS, and CLONE_NEWCGROUP to CLONE_NEWNET.
_CLONE_NAMESPACES: Final = 0x0002_0000 | 0x7E00_0000

Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, operand


def _parse_syscall_table(text: str) -> dict[str, tuple[int, int]]:
    rows = (entry.split() for entry in text.replace("\n", " ").split(","))
    return {name: (int(x86_64), int(aarch64)) for name, x86_64, aarch64 in rows}


NEVER: Final = _parse_syscall_table(",".join((_OTHER_PROCESSES, _FILES_OF_OTHERS, _KERNEL, _ESCAPES)))
PROGRAMS: Final = _parse_syscall_table(_PROGRAMS)
SOCKETS: Final = _parse_syscall_table(_SOCKETS)
CONVERSATIONS: Final = _parse_syscall_table(_CONVERSATIONS)
SPECIAL: Final = _parse_syscall_table(_SPECIAL)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install_syscall_filter(spawns: bool, connects: bool, drives_gpu: bool = False) -> None:
    """Refuse the system calls that this process does not need. Raises OSError if the kernel
    cannot.

    Unless `spawns` is set, it can start no processes. `connects` allows TCP and UDP;
    `drives_gpu` allows the sockets that CUDA's driver creates but does not use; they cannot
    be connected.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"the seccomp filter supports {', '.join(ARCHITECTURES)}, not {machine}")
    code = b"".join(struct.pack("<HBBI", *e) for e in _instructions(machine, spawns, connects, drives_gpu))
    prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(code) // 8, code)))


def _instructions(machine: str, spawns: bool, connects: bool, drives_gpu: bool) -> Iterator[Instruction]:
    architecture, column = ARCHITECTURES[machine]
    yield (_LOAD, 0, 0, _ARCHITECTURE)
    yield (_IF_EQUAL, 1, 0, architecture)
    yield (_ANSWER, 0, 0, _KILL)
    yield (_LOAD, 0, 0, _NUMBER)
    if machine == X86_64:
        yield from _answer_if((_IF_LARGER, _X32), _REFUSE)
    refused_calls = NEVER | ({} if spawns else PROGRAMS) | ({} if connects else CONVERSATIONS)
    for number in sorted(numbers[column] for numbers in refused_calls.values() if numbers[column] >= 0):
        yield from _answer_if((_IF_EQUAL, number), _REFUSE)
    special = {name: numbers[column] for name, numbers in SPECIAL.items()}
    yield from _answer_if((_IF_EQUAL, special["clone3"]), _ABSENT)  # filters cannot read its flags
    clone_kinds = [(_ANSWER, 0, 0, _ALLOW)] if spawns else [*_answer_if((_IF_BITS, _CLONE_THREAD), _ALLOW)]
    yield from _filter_one_call(
        special["clone"], [*_answer_if((_IF_BITS, _CLONE_NAMESPACES), _REFUSE), *clone_kinds]
    )
    own_limits = _answer_if((_IF_EQUAL, 0), _ALLOW)
    yield from _filter_one_call(special["prlimit64"], own_limits)
    families = [_AF_INET, _AF_INET6] if connects else [_AF_UNIX] if drives_gpu else []
    allow_steps = [step for family in families for step in _answer_if((_IF_EQUAL, family), _ALLOW)]
    yield from _filter_one_call(SOCKETS["socket"][column], allow_steps)
    if not connects:  # sends on an existing connection have no address
        high = [(_LOAD, 0, 0, _FIFTH_ARGUMENT + 4), *_answer_if((_IF_EQUAL, 0), _ALLOW)]
        yield from _filter_one_call(special["sendto"], [(_IF_EQUAL, 0, len(high), 0), *high], _FIFTH_ARGUMENT)
    yield (_ANSWER, 0, 0, _ALLOW)


def _answer_if(condition: tuple[int, int], answer: int) -> Iterator[Instruction]:
    test, number = condition
    yield (test, 0, 1, number)
    yield (_ANSWER, 0, 0, answer)


def _filter_one_call(
    number: int, rules: Iterable[Instruction], argument: int = _FIRST_ARGUMENT
) -> Iterator[Instruction]:
    """Yield a system call's filter: `rules` on one argument, else a refusal."""
    steps = [(_LOAD, 0, 0, argument), *rules, (_ANSWER, 0, 0, _REFUSE)]
    yield (_IF_EQUAL, 0, len(steps), number)
    yield from steps
