"""seccomp: a list of the system calls that a process and its children may make. All others
fail with EPERM, and calls newer than the list with ENOSYS, as on an older kernel.

Each entry is a call's name, its number on x86_64 and its number on aarch64 (-1 if it has no
such call). The calls of SPECIAL are judged by an argument.
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

_MEMORY: Final = """
brk 12 214, mmap 9 222, munmap 11 215, mremap 25 216, mprotect 10 226, madvise 28 233, mincore 27 232,
msync 26 227, mlock 149 228, mlock2 325 284, munlock 150 229, mlockall 151 230, munlockall 152 231,
pkey_mprotect 329 288, pkey_alloc 330 289, pkey_free 331 290, remap_file_pages 216 234,
map_shadow_stack 453 453, mseal 462 462, get_mempolicy 239 236, set_mempolicy 238 237, mbind 237 235,
set_mempolicy_home_node 450 450
"""
# Landlock limits their paths. No call that changes rights, owners or times is among them.
_FILES: Final = """
open 2 -1, openat 257 56, openat2 437 437, creat 85 -1, close 3 57, close_range 436 436, read 0 63,
write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69, pwritev 296 70,
preadv2 327 286, pwritev2 328 287, lseek 8 62, sendfile 40 71, copy_file_range 326 285, fallocate 285 47,
fadvise64 221 223, readahead 187 213, truncate 76 45, ftruncate 77 46, fsync 74 82, fdatasync 75 83,
sync_file_range 277 84, flock 73 32, fcntl 72 25, dup 32 23, dup2 33 -1, dup3 292 24, stat 4 -1, fstat 5 80,
lstat 6 -1, newfstatat 262 79, statx 332 291, statfs 137 43, fstatfs 138 44, access 21 -1, faccessat 269 48,
faccessat2 439 439, readlink 89 -1, readlinkat 267 78, getdents 78 -1, getdents64 217 61, getcwd 79 17,
chdir 80 49, fchdir 81 50, umask 95 166, rename 82 -1, renameat 264 38, renameat2 316 276, mkdir 83 -1,
mkdirat 258 34, rmdir 84 -1, link 86 -1, linkat 265 37, unlink 87 -1, unlinkat 263 35, symlink 88 -1,
symlinkat 266 36, getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11, llistxattr 195 12,
flistxattr 196 13
"""
_EVENTS: Final = """
pipe 22 -1, pipe2 293 59, poll 7 -1, ppoll 271 73, select 23 -1, pselect6 270 72, epoll_create 213 -1,
epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -1, epoll_pwait 281 22, epoll_pwait2 441 441,
eventfd 284 -1, eventfd2 290 19, signalfd 282 -1, signalfd4 289 74, timerfd_create 283 85,
timerfd_settime 286 86, timerfd_gettime 287 87
"""
# `socketpair` reaches no other process; the others need a socket that is open.
_OPEN_SOCKETS: Final = """
socketpair 53 199, recvfrom 45 207, recvmsg 47 212, recvmmsg 299 243, shutdown 48 210, getsockname 51 204,
getpeername 52 205, setsockopt 54 208, getsockopt 55 209
"""
_TIME: Final = """
time 201 -1, gettimeofday 96 169, clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115,
nanosleep 35 101, times 100 153, alarm 37 -1, setitimer 38 103, getitimer 36 102, timer_create 222 107,
timer_settime 223 110, timer_gettime 224 108, timer_getoverrun 225 109, timer_delete 226 111
"""
# Landlock limits the processes that get a signal.
_SIGNALS: Final = """
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136,
rt_sigtimedwait 128 137, rt_sigsuspend 130 133, sigaltstack 131 132, pause 34 -1, kill 62 129, tkill 200 130,
tgkill 234 131, restart_syscall 219 128
"""
# Priorities and affinities can be read, but not set.
_THREADS: Final = """
futex 202 98, futex_waitv 449 449, futex_wake 454 454, futex_wait 455 455, futex_requeue 456 456,
set_robust_list 273 99, get_robust_list 274 100, set_tid_address 218 96, rseq 334 293, membarrier 324 283,
arch_prctl 158 -1, set_thread_area 205 -1, get_thread_area 211 -1, uretprobe 335 -1, uprobe 336 -1,
sched_yield 24 124, sched_getaffinity 204 123, sched_getattr 315 275, sched_getscheduler 145 120,
sched_getparam 143 121, sched_get_priority_max 146 125, sched_get_priority_min 147 126,
sched_rr_get_interval 148 127, getcpu 309 168, getpriority 140 141, getpid 39 172, gettid 186 178,
getppid 110 173, getpgid 121 155, getpgrp 111 -1, getsid 124 156, getuid 102 174, geteuid 107 175,
getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150, getgroups 115 158, capget 125 90,
getrlimit 97 163, setrlimit 160 164, getrusage 98 165, sysinfo 99 179, uname 63 160, getrandom 318 278,
exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95
"""
_MORE_LIMITS: Final = """
seccomp 317 277, landlock_create_ruleset 444 444, landlock_add_rule 445 445, landlock_restrict_self 446 446
"""
_PROGRAMS: Final = """
fork 57 -1, vfork 58 -1, execve 59 221, execveat 322 281, pidfd_open 434 434
"""
# CUDA's driver binds a socket of the Unix family to an abstract address.
_GPU: Final = """
bind 49 200, listen 50 201, accept 43 202, accept4 288 242, memfd_create 319 279
"""
_SPECIAL: Final = """
clone 56 220, clone3 435 435, prlimit64 302 261, sendto 44 206, ioctl 16 29, prctl 157 167, socket 41 198,
connect 42 203
"""
_LAST_CALL: Final = 469  # `file_setattr` of Linux 6.17
_PR_SET_SECCOMP: Final = 22
_FILTER: Final = 2
# Classic BPF: load a word of the call's data; jump if it equals, shares bits or exceeds; answer.
_LOAD, _IF_EQUAL, _IF_BITS, _IF_LARGER, _ANSWER = 0x20, 0x15, 0x45, 0x25, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT, _FIFTH_ARGUMENT = 0, 4, 16, 24, 48
_AF_UNIX, _SOCK_STREAM = 1, 1
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_REFUSE: Final = _ERROR | errno.EPERM
_ABSENT: Final = _ERROR | errno.ENOSYS  # then the C library uses an older call
_ZERO: Final = _ERROR  # without an error: the call does nothing and returns 0
_CLONE_THREAD: Final = 0x00010000
# CLONE_NEWNS, and CLONE_NEWCGROUP to CLONE_NEWNET.
_CLONE_NAMESPACES: Final = 0x0002_0000 | 0x7E00_0000
# ioctl: of the terminals' requests (0x54..), only those that read a size or change a descriptor:
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC.
_TERMINAL_REQUESTS: Final = (0x53FF, 0x54FF)
_HARMLESS_REQUESTS: Final = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x5452)
# prctl: what a process reads, its threads' names, stricter rules for itself, and registers of aarch64.
# Not PR_SET_PDEATHSIG: the process must end with its parent; not PR_SCHED_CORE, which takes a whole core.
_PRCTL_OPTIONS: Final = (
    *(2, 3, 15, 16, 21, 22, 23, 29, 30, 38, 39, 41, 42, 50, 51, 52, 53, 54, 55, 56, 60, 61, 63, 64, 65, 66),
    0x53564D41,
)

Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, operand


def _parse_syscall_table(*texts: str) -> dict[str, tuple[int, int]]:
    rows = (entry.split() for entry in ",".join(texts).replace("\n", " ").split(","))
    return {name: (int(x86_64), int(aarch64)) for name, x86_64, aarch64 in rows}


#: What every sandboxed process may call.
ALLOWED: Final = _parse_syscall_table(
    *(_MEMORY, _FILES, _EVENTS, _OPEN_SOCKETS, _TIME, _SIGNALS, _THREADS, _MORE_LIMITS)
)
PROGRAMS: Final = _parse_syscall_table(_PROGRAMS)  # to start processes
GPU: Final = _parse_syscall_table(_GPU)  # for CUDA's driver
SPECIAL: Final = _parse_syscall_table(_SPECIAL)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install_syscall_filter(spawns: bool, takes_sockets: bool, drives_gpu: bool = False) -> None:
    """Allow only the system calls that this process needs. Raises OSError if the kernel
    cannot.

    Unless `spawns` is set, it can start no processes. No process can make a socket of a
    network. With `takes_sockets`, `socket` returns descriptor 0 and `connect` returns 0
    without doing anything, so that code that connects uses the socket that is descriptor 0.
    `drives_gpu` allows the sockets that CUDA's driver creates; they cannot be connected.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"the seccomp filter supports {', '.join(ARCHITECTURES)}, not {machine}")
    code = b"".join(
        struct.pack("<HBBI", *step) for step in _instructions(machine, spawns, takes_sockets, drives_gpu)
    )
    prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(code) // 8, code)))


def is_socket_given() -> bool:
    """Return whether this process has a filter with `takes_sockets`."""
    return int(ctypes.CDLL(None).connect(-1, None, 0)) == 0


def _instructions(machine: str, spawns: bool, takes_sockets: bool, drives_gpu: bool) -> Iterator[Instruction]:
    architecture, column = ARCHITECTURES[machine]
    special = {name: numbers[column] for name, numbers in SPECIAL.items()}
    yield (_LOAD, 0, 0, _ARCHITECTURE)
    yield (_IF_EQUAL, 1, 0, architecture)
    yield (_ANSWER, 0, 0, _KILL)
    yield (_LOAD, 0, 0, _NUMBER)
    yield from _answer_if(_IF_LARGER, _ABSENT, _LAST_CALL)  # also all calls of x86_64's x32 interface
    yield from _answer_if(_IF_EQUAL, _ABSENT, special["clone3"])  # filters cannot read its flags
    namespaces = _answer_if(_IF_BITS, _REFUSE, _CLONE_NAMESPACES)
    kinds = [(_ANSWER, 0, 0, _ALLOW)] if spawns else _answer_if(_IF_BITS, _ALLOW, _CLONE_THREAD)
    yield from _filter_one_call(special["clone"], [*namespaces, *kinds])
    own_limits = _answer_if(_IF_EQUAL, _ALLOW, 0)
    yield from _filter_one_call(special["prlimit64"], own_limits)
    yield from _filter_one_call(special["prctl"], _answer_if(_IF_EQUAL, _ALLOW, *_PRCTL_OPTIONS))
    first, last = _TERMINAL_REQUESTS
    requests = [
        *_answer_if(_IF_EQUAL, _ALLOW, *_HARMLESS_REQUESTS),
        *_answer_if(_IF_LARGER, _ALLOW, last),
        *_answer_if(_IF_LARGER, _REFUSE, first),
        (_ANSWER, 0, 0, _ALLOW),
    ]
    yield from _filter_one_call(special["ioctl"], requests, _SECOND_ARGUMENT)
    if takes_sockets:
        kinds = _answer_if(_IF_EQUAL, _ZERO, _SOCK_STREAM)
        yield from _filter_one_call(special["socket"], kinds, _SECOND_ARGUMENT)
        yield from _answer_if(_IF_EQUAL, _ZERO, special["connect"])
    elif drives_gpu:
        yield from _filter_one_call(special["socket"], _answer_if(_IF_EQUAL, _ALLOW, _AF_UNIX))
    # sends on an existing connection have no address
    high = [(_LOAD, 0, 0, _FIFTH_ARGUMENT + 4), *_answer_if(_IF_EQUAL, _ALLOW, 0)]
    yield from _filter_one_call(special["sendto"], [(_IF_EQUAL, 0, len(high), 0), *high], _FIFTH_ARGUMENT)
    allowed_calls = ALLOWED | (PROGRAMS if spawns else {}) | (GPU if drives_gpu else {})
    numbers = sorted(numbers[column] for numbers in allowed_calls.values() if numbers[column] >= 0)
    yield from _answer_if(_IF_EQUAL, _ALLOW, *numbers)
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
