"""Runs programs of models in processes of their own, which return only arrays (ADR 0102).

ModelCompiler answers with keys, comparisons and scripts that owners share, so it runs no code
generated from a model. Before it reads anything, it forks a fork server. A process that runs
programs is a fork of that server: it knows nothing but the programs and arrays that it is
sent in a shared memory file. It can write no other file, start no process and connect to
nothing; it answers each request with one bounded message, an error or none.
"""

import fcntl
import json
import mmap
import os
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator, suppress
from functools import partial
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore

from mallorn.graphc.core.graph_pass import Unsupported
from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.workers.device.forked_process import fork
from mallorn.workers.sandbox import landlock, seccomp
from mallorn.workers.sandbox.sandbox import OFF, WHOLE
from mallorn.workers.sandbox.system_paths import system_paths
from mallorn.workers.tvm.check_onnx_model import describe_tvm_error

Array = NDArray[Any]
#: Runs the `main` of a module for a target on these arguments; returns them after the run.
RunProgram = Callable[[Any, Any, Sequence[Array]], list[Array]]

_END: Final = b"end"  # ends the process; all other requests say where their text is in the memory
_DONE: Final = b"done"  # other answers say what happened to the program
_KILLED: Final = b"died of SIGKILL"  # by the kernel, for lack of memory
_MESSAGE_BYTES: Final = 2000
_ALIGNMENT: Final = 64  # TVM's kernels expect it of tensors
_FOLDED: Final = "tir_function"  # name by which FoldConstant calls what it built
_RUN: Final = "mallorn.run_folded_program"
_VIRTUAL_MACHINE: Final = (tvm.cpu().dlpack_device_type(), 0, relax.VirtualMachine.POOLED_ALLOCATOR)


@tvm_ffi.register_error
class ProgramFailed(Unsupported):
    """Raised if a program of a model crashes or raises an error while its process runs it."""


def run_here(mod: Any, target: Any, arrays: Sequence[Array]) -> list[Array]:
    """Run a program in this process."""
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.tirx.build(mod, target=target)["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


class ProgramEvaluator(ContextDecorator):
    """Builds and runs programs in a process that ends with the `with` block, or the decorated
    function. Construct it before this process reads files of strangers."""

    def __init__(self, sandbox_level: str) -> None:
        self._server, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._memory_fd = os.memfd_create("programs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # If a process could shorten the file, reading it would end this process.
        fcntl.fcntl(self._memory_fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self._memory_bytes = self._programs = 0
        with control:
            fork(partial(_serve_forks, control, self._memory_fd, sandbox_level), new_session=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._memory_bytes:
            self._ask(_END)
            with mmap.mmap(self._memory_fd, self._memory_bytes) as memory:
                memory.madvise(mmap.MADV_REMOVE)

    def run(self, mod: Any, target: Any, arrays: Sequence[Array]) -> list[Array]:
        """Run a module's `main`, as RunProgram. Raises ProgramFailed, MemoryError."""
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        self.call(self.build(mod, target, "main"), tensors, inputs=len(tensors), first_output=0)
        return [tensor.numpy() for tensor in tensors]

    def build(self, mod: Any, target: Any, function: str) -> int:
        """Build a function; return its number for `call`. Raises ProgramFailed."""
        opt_level = tvm.transform.PassContext.current().opt_level
        texts = tvm.ir.save_json(mod), tvm.ir.save_json(target)
        self._programs += 1
        self._request({"program": self._programs, "build": (*texts, function, opt_level)}, (), 0, 0)
        return self._programs

    def call(self, program: int, tensors: Sequence[Any], inputs: int, first_output: int) -> None:
        """Call a built program on copies of the first `inputs` tensors and on zeros; copy its
        outputs into `tensors`. Raises ProgramFailed, MemoryError."""
        self._request({"program": program}, tensors, inputs, first_output)

    def _request(
        self, fields: dict[str, Any], tensors: Sequence[Any], inputs: int, first_output: int
    ) -> None:
        places, start = [], 0  # the memory holds the tensors, then the text of the request
        for tensor in tensors:
            kind, shape = tvm_ffi.dtype(str(tensor.dtype)), list(map(int, tensor.shape))
            size = (prod(shape) * kind.bits * kind.lanes + 7) // 8
            places.append((start, start + size, shape, str(kind)))
            start += -(-size // _ALIGNMENT) * _ALIGNMENT
        text = json.dumps(fields | {"places": places}).encode()
        if (end := start + len(text)) > self._memory_bytes:
            os.ftruncate(self._memory_fd, end)
            self._memory_bytes = end
        memory = np.frombuffer(mmap.mmap(self._memory_fd, end), "uint8")
        memory[places[inputs][0] if inputs < len(places) else start : start] = 0
        memory[start:] = np.frombuffer(text, "uint8")
        copies = _tensors_in(memory, places)
        for tensor, copy in zip(tensors[:inputs], copies, strict=False):
            tensor.copyto(copy)
        answer = self._ask(json.dumps([start, end]).encode())
        if answer != _DONE:
            error = MemoryError if answer == _KILLED else ProgramFailed
            raise error(f"a program of the model {answer.decode(errors='replace')}")
        for tensor, copy in zip(tensors[first_output:], copies[first_output:], strict=True):
            copy.copyto(tensor)

    def _ask(self, request: bytes) -> bytes:
        self._server.send(request)
        if not (answer := self._server.recv(_MESSAGE_BYTES)):
            raise SystemExit("the fork server has ended")
        return answer


def redirect_folding(evaluator: ProgramEvaluator) -> None:
    """Have `evaluator` run what TVM's FoldConstant runs, in this process from now on.

    FoldConstant alone builds functions by the global function `tirx.build`. The virtual
    machine that it gets instead of a library only calls the evaluator.
    """

    def build(function: Any, target: Any) -> Any:
        program = evaluator.build(tvm.IRModule.from_expr(function), target, _FOLDED)
        written = {hash(write.source) for block in collect_nodes(function, SBlock) for write in block.writes}
        written |= {hash(store.buffer) for store in collect_nodes(function, BufferStore)}
        count = len(function.params)
        # Outputs are the last parameters, from the first that is written.
        inputs = next((i for i, param in enumerate(function.params) if hash(param) in written), count - 1)
        builder = relax.ExecBuilder()
        with builder.function(_FOLDED, num_inputs=count):
            numbers = map(builder.convert_constant, (program, inputs))
            builder.emit_call(_RUN, [*numbers, *map(builder.r, range(count))], dst=builder.r(count))
            builder.emit_ret(builder.r(count))
        machine = builder.get().mod["vm_load_executable"]()
        machine["vm_initialization"](*_VIRTUAL_MACHINE)
        return machine

    def run(program: int, inputs: int, *tensors: Any) -> None:
        evaluator.call(program, tensors, inputs, inputs)

    tvm_ffi.register_global_func(_RUN, run, override=True)
    tvm_ffi.register_global_func("tirx.build", build, override=True)


def _serve_forks(control: socket.socket, memory_fd: int, level: str) -> None:
    """Pass requests to a process, which is forked for the first one after _END, and its
    answers back, until the parent closes the connection."""
    _close_all_but(control.fileno(), memory_fd)
    readable = [(path, landlock.READ) for path, _ in system_paths()]
    pid = 0
    while request := control.recv(_MESSAGE_BYTES):
        answer = b""
        if request != _END:
            if not pid:
                # A connection of its own: a process could close one that others use later.
                connection, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with requests:
                    serve = partial(_serve_programs, requests, memory_fd, level, readable)
                    pid = fork(serve, new_session=False)
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.send(request)
                answer = connection.recv(_MESSAGE_BYTES)
        if not answer and pid:
            os.kill(pid, signal.SIGKILL)  # without effect if it is what has died
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            connection.close()
            pid, answer = 0, b"ended its process"
            if code < 0:
                answer = f"died of {signal.Signals(-code).name}".encode()
        control.send(answer or _DONE)


def _serve_programs(
    requests: socket.socket, memory_fd: int, level: str, readable: Sequence[tuple[Path, int]]
) -> None:
    """Carry out requests in this process, until it is killed."""
    null_fd = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null_fd, fd)
    _close_all_but(requests.fileno(), memory_fd)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it could lengthen the memory file
    tolerated = () if level == WHOLE else (OSError,)
    if level != OFF:
        with suppress(*tolerated):
            landlock.restrict_process(readable, opens_network=False)
        with suppress(*tolerated):
            seccomp.install_syscall_filter(spawns=False, takes_sockets=False)
    functions: dict[int, Any] = {}
    while request := requests.recv(_MESSAGE_BYTES):
        start, end = json.loads(request)
        memory = np.frombuffer(mmap.mmap(memory_fd, end), "uint8")
        fields, answer = json.loads(memory[start:].tobytes()), _DONE
        # The one broad `except`: the caller decides what an exception means.
        try:
            if "build" not in fields:
                functions[fields["program"]](*_tensors_in(memory, fields["places"]))
            else:
                mod, target, name, opt_level = fields["build"]
                with tvm.transform.PassContext(opt_level=opt_level):
                    built = tvm.tirx.build(tvm.ir.load_json(mod), target=tvm.ir.load_json(target))
                functions[fields["program"]] = built[name]
        except Exception as error:
            answer = f"raised an error: {describe_tvm_error(error)}".encode()[:_MESSAGE_BYTES]
        requests.send(answer)


def _close_all_but(*kept: int) -> None:
    for low, high in pairwise((2, *sorted(kept), os.sysconf("SC_OPEN_MAX"))):
        os.closerange(low + 1, high)


def _tensors_in(memory: Array, places: Sequence[tuple[int, int, list[int], str]]) -> list[Any]:
    """Return tensors that share the memory, by first byte, end, shape and data type."""
    return [
        tvm.runtime.from_dlpack(memory[start:end])._create_view(shape, dtype)
        for start, end, shape, dtype in places
    ]
