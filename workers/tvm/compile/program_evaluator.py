"""Runs programs of models in processes of their own, which return only arrays (ADR 0102).

ModelCompiler answers with keys, comparisons and scripts that owners share, so it runs no
code generated from a model. Before it reads anything, it forks a fork server. A process
that runs programs is a fork of that server: it knows nothing but the programs and arrays
that it is sent. It can write no file, start no process and connect to nothing. The server
bounds the length of its answers: bytes of arrays, or an error's text.
"""

import json
import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator, suppress
from functools import partial
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
from mallorn.workers.device.forked_process import describe_exit, fork
from mallorn.workers.device.random_and_saved_arrays import dtype_of
from mallorn.workers.sandbox import landlock, seccomp
from mallorn.workers.sandbox.sandbox import OFF, WHOLE
from mallorn.workers.sandbox.system_paths import system_paths
from mallorn.workers.subprocesses.frame_channel import Channel, ChannelClosed, Frame, FrameTooLarge
from mallorn.workers.tvm.network.check_onnx_model import describe_tvm_error

Array = NDArray[Any]
#: Runs the `main` of a module for a target on these arguments; returns them after the run.
RunProgram = Callable[[Any, Any, Sequence[Array]], list[Array]]

_KILLED: Final = "killed by SIGKILL"  # by the kernel, for lack of memory
_ERROR_BYTES: Final = 4000  # four for each character
_MOST_FDS: Final = 1 << 20
_FOLDED: Final = "tir_function"  # name by which FoldConstant calls what it built
_RUN: Final = "mallorn.run_folded_program"
_VIRTUAL_MACHINE: Final = (tvm.cpu().dlpack_device_type(), 0, relax.VirtualMachine.POOLED_ALLOCATOR)


@tvm_ffi.register_error
class ProgramFailed(Unsupported):
    """Raised if a program of a model crashes or raises an error while its process runs it."""


class ProgramEvaluator(ContextDecorator):
    """Builds and runs programs in a process that ends with the `with` block, or the
    decorated function. Construct it before this process reads files of strangers."""

    def __init__(self, sandbox_level: str) -> None:
        end, control = socket.socketpair()
        self._server = Channel(end)
        self._programs = 0
        with control:
            fork(partial(_serve_forks, control, sandbox_level), new_session=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._request(0)

    def run(self, mod: Any, target: Any, arrays: Sequence[Array]) -> list[Array]:
        """Run a module's `main`, as RunProgram. Raises ProgramFailed, MemoryError."""
        return self.call(self.build(mod, target, "main"), arrays, first_output=0)

    def build(self, mod: Any, target: Any, function: str) -> int:
        """Build a function; return its number for `call`. Raises ProgramFailed."""
        opt_level = tvm.transform.PassContext.current().opt_level
        texts = tvm.ir.save_json(mod), tvm.ir.save_json(target)
        self._programs += 1
        self._request(0, b"", self._programs, *texts, function, opt_level)
        return self._programs

    def call(self, program: int, arrays: Sequence[Array], first_output: int) -> list[Array]:
        """Call a built program; return the arrays from `first_output` on after the run.
        Raises ProgramFailed, MemoryError."""
        kinds = [(str(array.dtype), array.shape) for array in arrays]
        body = b"".join(array.tobytes() for array in arrays)
        data_bytes = sum(array.nbytes for array in arrays[first_output:])
        data = self._request(data_bytes, body, program, kinds, first_output)
        return _split(data, kinds[first_output:])

    def _request(self, data_bytes: int, body: bytes = b"", *fields: object) -> bytes:
        """Send a request and return `data_bytes`; one without fields ends the process."""
        self._server.put(Frame(json.dumps([data_bytes, *fields]), body))
        try:
            answer = _receive(self._server)
        except ChannelClosed:
            raise SystemExit("the fork server has ended") from None
        if answer.head or len(answer.body) != data_bytes:
            error = MemoryError if answer.head == _KILLED else ProgramFailed
            raise error(f"a program of the model failed: {answer.head[:_ERROR_BYTES]}")
        return answer.body


def redirect_folding(evaluator: ProgramEvaluator) -> None:
    """Have `evaluator` run what TVM's FoldConstant runs, in this process from now on.

    FoldConstant alone builds functions by the global function `tirx.build`. The virtual
    machine that it gets instead of a library only calls the evaluator.
    """

    def build(function: Any, target: Any) -> Any:
        program = evaluator.build(tvm.IRModule.from_expr(function), target, _FOLDED)
        blocks = collect_nodes(function, SBlock)
        outputs = {hash(write.source) for block in blocks for write in block.writes}
        outputs |= {hash(store.buffer) for store in collect_nodes(function, BufferStore)}
        count = len(function.params)
        # Outputs are the last parameters, from the first that is written.
        numbered = enumerate(function.params)
        inputs = next((i for i, param in numbered if hash(param) in outputs), count - 1)
        builder = relax.ExecBuilder()
        with builder.function(_FOLDED, num_inputs=count):
            numbers = map(builder.convert_constant, (program, inputs))
            builder.emit_call(_RUN, [*numbers, *map(builder.r, range(count))], dst=builder.r(count))
            builder.emit_ret(builder.r(count))
        machine = builder.get().mod["vm_load_executable"]()
        machine["vm_initialization"](*_VIRTUAL_MACHINE)
        return machine

    def run(program: int, inputs: int, *tensors: Any) -> None:
        arrays = [tensor.numpy() for tensor in tensors]
        for array in arrays[inputs:]:
            array.fill(0)
        results = evaluator.call(program, arrays, inputs)
        for tensor, output in zip(tensors[inputs:], results, strict=True):
            tensor.copyfrom(output)

    tvm_ffi.register_global_func(_RUN, run, override=True)
    tvm_ffi.register_global_func("tirx.build", build, override=True)


def _serve_forks(control: socket.socket, level: str) -> None:
    """Pass requests to a process, which is forked for the first one, and its answers back,
    until the parent closes the connection."""
    _close_all_but(control)
    parent = Channel(control)
    readable = [(path, landlock.READ) for path, _ in system_paths()]
    pid = 0
    with suppress(ChannelClosed):
        while True:
            request, answer = _receive(parent), None
            data_bytes, *fields = json.loads(request.head)
            if fields and not pid:
                # A connection of its own: a process could close one that others use later.
                end, requests = socket.socketpair()
                with requests:
                    pid = fork(partial(_serve_programs, requests, level, readable), new_session=False)
            with suppress(ChannelClosed, FrameTooLarge):
                if fields:
                    process = Channel(end, data_bytes + _ERROR_BYTES)
                    process.put(request)
                    answer = _receive(process)
            if answer is None and pid:
                os.kill(pid, signal.SIGKILL)  # without effect if it is what has died
                end.close()
                status = os.waitpid(pid, 0)[1]
                pid, answer = 0, Frame(describe_exit(status) if fields else "")
            parent.put(answer or Frame(""))


def _serve_programs(requests: socket.socket, level: str, readable: Sequence[tuple[Path, int]]) -> None:
    """Carry out requests in this process, until it is killed."""
    null_fd = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null_fd, fd)
    _close_all_but(requests)
    tolerated = () if level == WHOLE else (OSError,)
    if level != OFF:
        with suppress(*tolerated):
            landlock.restrict_process(readable, opens_network=False)
        with suppress(*tolerated):
            seccomp.install_syscall_filter(spawns=False, takes_sockets=False)
    server, functions = Channel(requests), dict[int, Any]()
    while True:
        request, error_text, data = _receive(server), "", b""
        _, program, *fields = json.loads(request.head)
        # The one broad `except`: the caller decides what an exception means.
        try:
            if program in functions:
                kinds, first_output = fields
                tensors = [tvm.runtime.tensor(array) for array in _split(request.body, kinds)]
                functions[program](*tensors)
                data = b"".join(tensor.numpy().tobytes() for tensor in tensors[first_output:])
            else:
                mod, target, name, opt_level = fields
                with tvm.transform.PassContext(opt_level=opt_level):
                    modules = tvm.ir.load_json(mod), tvm.ir.load_json(target)
                    library = tvm.tirx.build(modules[0], target=modules[1])
                functions[program] = library[name]
        except Exception as error:
            error_text = describe_tvm_error(error)[: _ERROR_BYTES // 8].replace("\n", " ")
        server.put(Frame(error_text, data))


def _close_all_but(connection: socket.socket) -> None:
    kept_fd = connection.fileno()
    os.closerange(3, kept_fd)
    os.closerange(kept_fd + 1, _MOST_FDS)


def _receive(channel: Channel) -> Frame:
    while (frame := channel.receive_frame()) is None:
        channel.wait()
    return frame


def _split(data: bytes, kinds: Sequence[tuple[str, Sequence[int]]]) -> list[Array]:
    """Return copies of the arrays in `data`, by data type and shape."""
    arrays, start = list[Array](), 0
    for dtype, shape in kinds:
        array = np.frombuffer(data, dtype_of(dtype), prod(shape), start)
        arrays.append(array.reshape(shape).copy())
        start += array.nbytes
    return arrays
