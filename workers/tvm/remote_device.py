"""One RPC session with a device, from the runner's side."""

import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from pydantic import TypeAdapter
from tvm import rpc
from tvm.runtime import Module, Tensor, empty
from tvm.runtime.vm import VirtualMachine

from mallorn.core.errors import Unavailable
from mallorn.core.fleet_key import HINT
from mallorn.core.os_errors import lacks_handles, no_handle
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from workers.device.device_class import DeviceClass, Identity, endpoint_of
from workers.device.rpc_handshake import DEATH_NOTICE, NO_SESSION, UNHEARD
from workers.device.session_gateway import GATEWAY_VARIABLE, GatewayClient, OpenSession
from workers.device.slice_timing_result import SliceTimes
from workers.device.tracker_client import Address, device_key
from workers.host.load_meter import Load
from workers.interfaces.tensor_arguments import Arguments
from workers.tvm.cuda_errors import GPU_FAILED, TOO_SLOW, meaning, without_source

log = logging.getLogger(__name__)
_HOLD_SEC = 1.0  # a call that waits for the cores returns after so long, and is made again
_NAP_SEC = 0.1  # no suspension is shorter, and no two looks at two clocks lie further apart
FLOAT_RANGE = (0.1, 1.0)
INT_RANGE = (0, 1)
T = TypeVar("T")
_names = count()
_LOAD: Final = TypeAdapter(Load)
_SLICE_TIMES: Final = TypeAdapter(SliceTimes)
# What a session that broke raises (TVM's RPCError is a RuntimeError), and one that lacks what we ask for.
_BROKEN: Final = (RuntimeError, AttributeError)
# And what comes of reading an answer that is none.
_UNREADABLE: Final = (*_BROKEN, KeyError, TypeError, ValueError)


class CandidateFailed(Exception):
    """The candidate raised an error or took its session down."""

    outcome = Outcome.RUN_ERROR


class CandidateTimeout(CandidateFailed):
    """The candidate did not come back before its deadline."""

    outcome = Outcome.RUN_TIMEOUT


class CandidateKilled(CandidateFailed):
    """Its session got a SIGKILL, which only the device's host and its users send: it may be innocent."""

    outcome = Outcome.WORKER_LOST


class CandidateUnheard(CandidateKilled):
    """Its session waited for a word of its client until the deadline: it is innocent."""


class RemoteDevice:
    """A device held exclusively until `close`; libraries are called at `entry`."""

    entry = "main"

    def __init__(
        self, tracker: Address, target: Target, wait_sec: float, like: DeviceClass | None = None
    ) -> None:
        self.session = connect(tracker, device_key(target), wait_sec, like)
        self.kind = "cpu" if target.is_cpu else target.kind
        self.device = self.session.device(self.kind, 0)
        self._functions: dict[str, Callable[..., Any]] = {}
        self._args: dict[int, tuple[Any, Tensor]] = {}
        with _or_lost():
            self.identity: Identity = json.loads(self.call("mallorn.identity"))
            self._class = endpoint_of(self.identity).device_class
        if not self.is_like(like):  # it changed just now, or its tracker is of an older version
            self.close()
            raise Unavailable(f"device {self.identity['name']} is of another class than the job's times")

    def is_like(self, like: DeviceClass | None) -> bool:
        """Whether it is of the class that is asked for."""
        return like in (None, self._class)

    def run(self, artifact: Path, candidate_key: str, timeout_sec: float, work: Callable[[Module], T]) -> T:
        """Upload a library and do `work` with it before the deadline.

        Raises CandidateFailed or CandidateTimeout; Unavailable when the device itself was lost.
        """
        name = self.upload(artifact)
        result = self.attempt(candidate_key, timeout_sec, lambda: work(self.session.load_module(name)))
        with suppress(*_BROKEN):  # what was timed is timed; whoever comes next finds the session dead
            self.session.remove(name)
        return result

    def upload(self, artifact: Path) -> str:
        """Bring a library to the device; its name there. Raises what `run` raises."""
        name = f"{next(_names)}.so"
        with self._judged():
            self.session.upload(bytearray(artifact.read_bytes()), name)
        return name

    def attempt(self, candidate_key: str, timeout_sec: float, work: Callable[[], T]) -> T:
        """Do something there before the deadline. Raises what `run` raises."""
        asleep_sec = _asleep_sec()
        with self._judged():
            self.call("mallorn.begin", candidate_key, timeout_sec)
            result = work()
            self.call("mallorn.end")
        if _asleep_sec() - asleep_sec > _NAP_SEC:  # TVM's timer went on
            raise Unavailable("this machine was suspended while a candidate was timed; it is timed again")
        return result

    def free_memory(self) -> int:
        """Bytes that models may take there now; negative where it cannot tell. Raises Unavailable."""
        with _or_lost():
            return int(self.call("mallorn.free_memory"))

    def load(self) -> Load:
        """How busy others kept the device's host since the last look. Raises Unavailable."""
        with _or_lost():
            return _LOAD.validate_json(self.call("mallorn.load"))

    def hold(self, wait_sec: float) -> None:
        """Have the device's host alone for the next candidate. Raises Unavailable when it stays in use."""
        deadline_sec = time.monotonic() + wait_sec
        with _or_lost():
            while not self.call("mallorn.hold", _HOLD_SEC):
                if time.monotonic() > deadline_sec:
                    raise Unavailable(
                        f"others timed on the device's host for {wait_sec:g} s", hint="mallorn devices"
                    )

    def answers(self) -> bool:
        """Whether the session still lives."""
        return self._death() is None

    def _death(self) -> str | None:
        """Return what is heard in the place of a session that does not answer; None if it answers."""
        try:
            self.call("mallorn.end")
        except _BROKEN as error:
            return str(error)
        return None

    def random_args(self, spec: Arguments) -> list[Tensor]:
        """Random arguments of a workload, made on the device; those of the last candidate are reused.

        Raises what `run` raises.
        """
        for index in [index for index in self._args if index >= len(spec.args)]:
            del self._args[index]
        with self._judged():
            return [self._random_arg(index, spec) for index in range(len(spec.args))]

    def copy_args(self, arrays: Sequence[Any]) -> list[Tensor]:
        """Arguments with given values. Raises what `run` raises."""
        with self._judged():
            return [self._empty(array.shape, str(array.dtype)).copyfrom(array) for array in arrays]

    def time_slices(
        self,
        library: Module,
        number: int,
        count: int,
        tensors: Sequence[Tensor],
        function: str | None = None,
        cold: bool = False,
    ) -> SliceTimes:
        """Slices of so many runs each, and what disturbed them. Raises CandidateFailed for garbage.

        With `cold` a GPU's L2 cache is emptied before each run.
        """
        call = library, function or self.entry, self.kind, number, count
        told = self.call("mallorn.time_cold_slices" if cold else "mallorn.time_slices", *call, *tensors)
        try:
            times = _SLICE_TIMES.validate_json(told)
        except ValueError:
            raise CandidateFailed("the device tells what are no times") from None
        if len(times.slices) != count:
            raise CandidateFailed(f"the device tells {len(times.slices)} times of {count}")
        return times

    def close(self) -> None:
        """Give the device back."""
        self._args.clear()
        self._functions.clear()
        del self.session

    def _random_arg(self, index: int, spec: Arguments) -> Tensor:
        _, dtype, shape = spec.args[index]
        default = INT_RANGE if dtype.startswith(("int", "uint", "bool")) else FLOAT_RANGE
        low, high = spec.ranges.get(str(index), default)
        wanted = (dtype, shape, float(low), float(high))
        if index not in self._args or self._args[index][0] != wanted:
            self._args.pop(index, None)  # freed before its successor is made
            tensor = self._empty(shape, dtype)
            self.call("mallorn.random_fill", tensor, float(low), float(high), index)
            self._args[index] = (wanted, tensor)
        return self._args[index][1]

    def _empty(self, shape: Sequence[int], dtype: str) -> Tensor:
        return empty(tuple(shape), dtype, self.device)

    def call(self, name: str, *args: Any) -> Any:
        if name not in self._functions:
            self._functions[name] = self.session.get_function(name)
        return self._functions[name](*args)

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """Whose fault was it? The candidate's, if its session still answers or its server saw it die."""
        try:
            yield
        except _BROKEN as error:
            raise self._judge(str(error)) from None

    def _judge(self, text: str) -> CandidateFailed | Unavailable:
        text = text.removeprefix("RPCError: Error caught from RPC call:").strip()
        if DEATH_NOTICE not in text:
            death = self._death()  # a session whose GPU's context broke ends when it is asked
            if death is not None and DEATH_NOTICE not in death:
                return _lost(text)
            if (words := meaning(text)) is not None:
                told = f"{words}: {without_source(text)}"
                if words == GPU_FAILED:
                    return _lost(told)
                return CandidateTimeout(told) if words == TOO_SLOW else CandidateFailed(told)
            if death is None:
                return CandidateFailed(text)
            text = death
        if "SIGALRM" in text and UNHEARD in text:
            return CandidateUnheard("the network, or its client, was silent until its time was over")
        if "SIGALRM" in text:
            return CandidateTimeout("did not return in time")
        return CandidateKilled(text) if "SIGKILL" in text else CandidateFailed(text)


class RemoteModel:
    """A whole model with its inputs on a device, driven over RPC; the caller sets the deadline."""

    def __init__(self, device: RemoteDevice, library: Path, inputs: Path) -> None:
        self._device = device
        self._name = device.upload(library)
        with np.load(inputs) as archive:
            arrays = [np.asarray(archive[name], order="C") for name in archive.files]
        self._args = device.copy_args(arrays)
        self._machine = self._ready()
        self._watched: Any = None

    def outputs(self) -> list[Any]:
        """What one run computes, in order."""
        self._machine.invoke_stateful(RemoteDevice.entry)
        return [tensor.numpy() for tensor in self._outputs()]

    def time(self, number: int) -> Sequence[float]:
        """Return the seconds of so many runs, after one that does not count."""
        evaluate = self._machine.time_evaluator(
            "invoke_stateful", self._device.device, number=1, repeat=number
        )
        results: Sequence[float] = evaluate(RemoteDevice.entry).results
        return results

    def time_kernels(self, seconds: float) -> dict[str, float]:
        """Microseconds a run spends in each kernel, in a machine that is watched from now on."""
        if self._watched is None:
            self._watched = self._ready(uses_graphs=False)
        told = self._device.call("mallorn.kernel_times", self._watched.module, self._device.kind, seconds)
        times: dict[str, float] = json.loads(told)
        return times

    def _ready(self, uses_graphs: bool = True) -> VirtualMachine:
        """Return a virtual machine with its inputs; the device's runtime needs no compiler.

        It runs parts as CUDA graphs where the model was compiled for them, unless each kernel is timed.
        """
        if self._device.kind == "cuda":
            self._device.call("mallorn.use_graphs", int(uses_graphs))
        machine = VirtualMachine(self._device.session.load_module(self._name), self._device.device)
        machine.set_input(RemoteDevice.entry, *self._args)
        return machine

    def _outputs(self, *place: int) -> Iterator[Any]:
        """Of outputs that are tuples of tuples, the tensors in order.

        The machine's own get_outputs leaves a cycle behind, which keeps the session open for a while.
        """
        module = self._machine.module
        arity = module["get_output_arity"](RemoteDevice.entry, *place)
        if arity == -1:
            yield module["get_output"](RemoteDevice.entry, *place)
        for index in range(arity):
            yield from self._outputs(*place, index)


@contextmanager
def _or_lost() -> Iterator[None]:
    """A device that does not do what has nothing to do with any candidate is lost. Raises Unavailable."""
    try:
        yield
    except _UNREADABLE as error:
        raise _lost(f"{type(error).__name__}: {error}") from None


def _asleep_sec() -> float:
    """How long this machine has been suspended since it was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def _lost(text: str) -> Unavailable:
    if lacks_handles(text):  # this host is at fault, and not the device
        return no_handle("a connection")
    return Unavailable(f"the device was lost: {text}", hint="mallorn device, on the host that measures")


def connect(tracker: Address, key: str, wait_sec: float, like: DeviceClass | None = None) -> rpc.RPCSession:
    """Wait for a free device, of a class. Raises NoDevice when none is registered, Unavailable when all stay
    busy, or are not to be reached where they say they are, or give no session."""
    deadline_sec = time.monotonic() + wait_sec
    while True:
        opened = _gateway().open(tracker, key, max(0.0, deadline_sec - time.monotonic()), like)
        try:
            return _session(opened)
        except _BROKEN as error:
            _, refused, why = str(error).partition(NO_SESSION)
            if refused or time.monotonic() > deadline_sec:
                raise _lost(why.strip() or str(error)) from None
            log.warning("a device gave no session: %s", error)
            time.sleep(0.1)


@lru_cache
def _gateway() -> GatewayClient:
    end = socket.socket(fileno=int(os.environ.pop(GATEWAY_VARIABLE)))
    end.set_inheritable(False)
    return GatewayClient(end)


def _session(opened: OpenSession) -> rpc.RPCSession:
    """Return a session that was opened. Raises Unavailable for a device that is not of our fleet."""
    session = rpc.connect("127.0.0.1", opened.port, opened.ticket)
    if opened.keys:
        said = secrets.token_hex(16)
        proof = str(session.get_function("mallorn.prove")(said))
        if not any(key.proves(proof, "device", said) for key in opened.keys):
            raise Unavailable("what answers in the device's place does not know our key", hint=HINT)
    return session
