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
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
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
from mallorn.workers.subprocesses.typed_method import Served
from mallorn.workers.tvm.check_onnx_model import describe_tvm_error

Array = NDArray[Any]
#: Runs the `main` of a module for a target on these arguments; returns them after the run.
RunProgram = Callable[[Any, Any, Sequence[Array]], list[Array]]

_END: Final = b"end"  # ends the process; all other requests say where their text is in the memory
_DONE: Final = b"1"
_FAILED: Final = b"0"  # then the error's text
_DIED: Final = b"-"  # then the signal's number; 0 for an exit
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


class ProgramEvaluator:
    """Builds and runs programs in a process that lives until `end`. Construct it before this
    process has further threads, and before it reads files of strangers."""

    def __init__(self, sandbox_level: str) -> None:
        self._server, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._memory_fd = os.memfd_create("programs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # If a process could shorten the file, reading it would end this process.
        fcntl.fcntl(self._memory_fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self._memory_bytes = 0
        self._programs = 0  # built by the present process
        with control:
            serve = partial(_serve_forks, control, self._memory_fd, sandbox_level)
            self._server_pid = fork(serve, new_session=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        os.close(self._memory_fd)
        os.waitpid(self._server_pid, 0)

    def run(self, mod: Any, target: Any, arrays: Sequence[Array]) -> list[Array]:
        """Run a module's `main`, as RunProgram. Raises ProgramFailed, MemoryError."""
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        self.call(self.build(mod, target, "main"), tensors, range(len(tensors)), range(len(tensors)))
        return [tensor.numpy() for tensor in tensors]

    def build(self, mod: Any, target: Any, function: str) -> int:
        """Build a function of a module; return the number by which `call` names it. Raises
        ProgramFailed if TVM cannot build it."""
        opt_level = tvm.transform.PassContext.current().opt_level
        texts = {"mod": tvm.ir.save_json(mod), "target": tvm.ir.save_json(target)}
        self._request(texts | {"function": function, "opt_level": opt_level})
        self._programs += 1
        return self._programs - 1

    def call(
        self, program: int, tensors: Sequence[Any], inputs: Collection[int], outputs: Collection[int]
    ) -> None:
        """Call a built program, and copy the outputs into `tensors`. `inputs` and `outputs`
        are indices; tensors that are no inputs hold zeros. Raises ProgramFailed, MemoryError."""
        self._request({"program": program}, tensors, inputs, outputs)

    def end(self) -> None:
        """Kill the process, if any, and forget its programs and arrays."""
        if self._memory_bytes:
            self._ask(_END)
            with mmap.mmap(self._memory_fd, self._memory_bytes) as memory:
                memory.madvise(mmap.MADV_REMOVE)
        self._programs = 0

    def _request(
        self,
        fields: dict[str, Any],
        tensors: Sequence[Any] = (),
        inputs: Collection[int] = (),
        outputs: Collection[int] = (),
    ) -> None:
        """Have the process carry out a request on copies of tensors, and wait for it."""
        # The memory holds the tensors, then the text of the request.
        places, start = [], 0
        for tensor in tensors:
            places.append((list(map(int, tensor.shape)), str(tensor.dtype), start))
            start += -(-_count_bytes(*places[-1][:2]) // _ALIGNMENT) * _ALIGNMENT
        text = json.dumps(fields | {"tensors": places}).encode()
        end = start + len(text)
        if end > self._memory_bytes:
            os.ftruncate(self._memory_fd, end)
            self._memory_bytes = end
        memory = np.frombuffer(mmap.mmap(self._memory_fd, end), "uint8")
        memory[start:] = np.frombuffer(text, "uint8")
        copies = _tensors_in(memory, places)
        for index, tensor in enumerate(tensors):
            if index in inputs:
                tensor.copyto(copies[index])
            else:
                _bytes_of(memory, *places[index]).fill(0)
        answer = self._ask(json.dumps([start, end]).encode())
        if answer[:1] == _DIED:
            self._programs = 0
            if (died_of := answer[1]) == signal.SIGKILL:
                raise MemoryError("a program of the model took more memory than there is")
            cause = f"died of {signal.Signals(died_of).name}" if died_of else "ended"
            raise ProgramFailed(f"the process that ran a program of the model {cause}")
        if answer != _DONE:
            words = answer[1:].decode(errors="replace")
            raise ProgramFailed(f"a program of the model raised an error: {words}")
        for index in outputs:
            copies[index].copyto(tensors[index])

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

    def run(program: int, inputs: int, *tensors: Any) -> None:
        evaluator.call(program, tensors, range(inputs), range(inputs, len(tensors)))

    def build(function: Any, target: Any) -> Any:
        program = evaluator.build(tvm.IRModule.from_expr(function), target, _FOLDED)
        count, builder = len(function.params), relax.ExecBuilder()
        with builder.function(_FOLDED, num_inputs=count):
            numbers = map(builder.convert_constant, (program, _count_inputs(function)))
            builder.emit_call(_RUN, [*numbers, *map(builder.r, range(count))], dst=builder.r(count))
            builder.emit_ret(builder.r(count))
        machine = builder.get().mod["vm_load_executable"]()
        machine["vm_initialization"](*_VIRTUAL_MACHINE)
        return machine

    tvm_ffi.register_global_func(_RUN, run, override=True)
    tvm_ffi.register_global_func("tirx.build", build, override=True)


def end_after_each_call(evaluator: ProgramEvaluator, methods: Served) -> Served:
    """Return a child's methods, after each of which the evaluator's process ends: no process
    runs programs of two models."""

    def wrap(answer: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def answer_and_end(params: bytes) -> bytes:
            try:
                return answer(params)
            finally:
                evaluator.end()

        return answer_and_end

    return {name: wrap(answer) for name, answer in methods.items()}


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
            pid, answer = 0, _DIED + bytes([max(0, -code)])
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
    for confine in (
        lambda: landlock.restrict_process(readable, connects=False),
        lambda: seccomp.install_syscall_filter(spawns=False, connects=False),
    ):
        try:
            if level != OFF:
                confine()
        except OSError:
            if level == WHOLE:
                raise
    functions: list[Any] = []
    while request := requests.recv(_MESSAGE_BYTES):
        start, end = json.loads(request)
        memory = np.frombuffer(mmap.mmap(memory_fd, end), "uint8")
        # The one broad `except`: the caller decides what an exception means.
        try:
            _carry_out(json.loads(memory[start:].tobytes()), memory, functions)
        except Exception as error:
            requests.send(_FAILED + describe_tvm_error(error).encode()[: _MESSAGE_BYTES - 1])
        else:
            requests.send(_DONE)


def _close_all_but(*kept: int) -> None:
    for low, high in pairwise((2, *sorted(kept), os.sysconf("SC_OPEN_MAX"))):
        os.closerange(low + 1, high)


def _carry_out(fields: dict[str, Any], memory: Array, functions: list[Any]) -> None:
    if "program" in fields:
        functions[fields["program"]](*_tensors_in(memory, fields["tensors"]))
        return
    mod, target = (tvm.ir.load_json(fields[name]) for name in ("mod", "target"))
    with tvm.transform.PassContext(opt_level=fields["opt_level"]):
        functions.append(tvm.tirx.build(mod, target=target)[fields["function"]])


def _count_inputs(function: Any) -> int:
    """Return how many parameters precede the first output, a parameter that is written."""
    written = {hash(region.source) for block in collect_nodes(function, SBlock) for region in block.writes}
    written |= {hash(store.buffer) for store in collect_nodes(function, BufferStore)}
    outputs = (index for index, param in enumerate(function.params) if hash(param) in written)
    return next(outputs, len(function.params) - 1)


def _count_bytes(shape: Sequence[int], dtype: str) -> int:
    kind = tvm_ffi.dtype(dtype)
    return (prod(shape) * kind.bits * kind.lanes + 7) // 8


def _bytes_of(memory: Array, shape: Sequence[int], dtype: str, start: int) -> Array:
    return memory[start : start + _count_bytes(shape, dtype)]


def _tensors_in(memory: Array, places: Sequence[tuple[Sequence[int], str, int]]) -> list[Any]:
    """Return tensors that share the memory, by shape, data type and first byte."""
    return [
        tvm.runtime.from_dlpack(_bytes_of(memory, *place))._create_view(place[0], place[1])
        for place in places
    ]
