"""Client of an RPC session with a device: runs candidates and models, explains errors."""

import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
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
from mallorn.core.os_errors import reports_too_many_files, too_many_files_error
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.workers.device import session_gateway
from mallorn.workers.device.detect_host import Identity
from mallorn.workers.device.device_class import DeviceClass, endpoint_of
from mallorn.workers.device.device_kind import device_kind, tvm_device_type
from mallorn.workers.device.random_and_saved_arrays import TimedArguments
from mallorn.workers.device.rpc_handshake import DEATH_NOTICE, NO_SESSION, UNHEARD
from mallorn.workers.device.slice_timing_result import SliceTimes
from mallorn.workers.device.tracker_client import Address, tracker_key
from mallorn.workers.host.load_meter import Load
from mallorn.workers.interfaces.tensor_arguments import Arguments

log = logging.getLogger(__name__)
_HOLD_SEC = 1.0  # longest wait for the cores in one call, which is then repeated
_NAP_SEC = 0.1  # shortest suspension; two clocks are read within less time
T = TypeVar("T")
_upload_numbers = count()
_LOAD: Final = TypeAdapter(Load)
_SLICE_TIMES: Final = TypeAdapter(SliceTimes)
# Errors of a broken session (TVM's RPCError is a RuntimeError), or if it lacks a function.
_BROKEN: Final = (RuntimeError, AttributeError)
# Also errors of reading an invalid answer.
_UNREADABLE: Final = (*_BROKEN, KeyError, TypeError, ValueError)


class CandidateFailed(Exception):
    """The candidate raised an error or took its session down."""

    outcome = Outcome.RUN_ERROR


class CandidateTimeout(CandidateFailed):
    """The candidate did not return before its deadline."""

    outcome = Outcome.RUN_TIMEOUT


class CandidateKilled(CandidateFailed):
    """The host or its users sent SIGKILL to the session: perhaps not the candidate's fault."""

    outcome = Outcome.WORKER_LOST


class CandidateUnheard(CandidateKilled):
    """The session waited for its client until the deadline: not the candidate's fault."""


class RemoteDevice:
    """An RPC session with a device, which no other client can use until `close`. `entry` is
    the name of the library function that is called."""

    entry = "main"

    def __init__(
        self, tracker: Address, target: Target, wait_sec: float, like: DeviceClass | None = None
    ) -> None:
        self.session = connect(tracker, tracker_key(target), wait_sec, like)
        self._kind = device_kind(target)
        self.kind = tvm_device_type(target)
        self.device = self.session.device(self.kind, 0)
        self._functions: dict[str, Callable[..., Any]] = {}
        self._args = TimedArguments(self._empty, partial(self.call, "mallorn.random_fill"))
        with _raise_device_lost():
            self.identity: Identity = json.loads(self.call("mallorn.identity"))
            self._class = endpoint_of(self.identity).device_class
        if not self.is_of_class(like):  # the device changed just now, or its tracker is older
            self.close()
            raise Unavailable(f"device {self.identity['name']} is of another class than the job's times")

    def is_of_class(self, device_class: DeviceClass | None) -> bool:
        """Return whether the device is of the class `like`. None stands for any class."""
        return device_class in (None, self._class)

    def run(self, artifact: Path, candidate_key: str, timeout_sec: float, work: Callable[[Module], T]) -> T:
        """Upload a library and call `work` with it, for at most `timeout_sec`. Raises
        CandidateFailed, CandidateTimeout, or Unavailable if the device was lost."""
        name = self.upload(artifact)
        result = self.attempt(candidate_key, timeout_sec, lambda: work(self.session.load_module(name)))
        with suppress(*_BROKEN):  # the result is valid; the next call notices a broken session
            self.session.remove(name)
        return result

    def upload(self, artifact: Path) -> str:
        """Upload a library and return its name on the device. Raises the errors of `run`."""
        name = f"{next(_upload_numbers)}.so"
        with self._translate_rpc_errors():
            self.session.upload(bytearray(artifact.read_bytes()), name)
        return name

    def attempt(self, candidate_key: str, timeout_sec: float, work: Callable[[], T]) -> T:
        """Call `work` for at most `timeout_sec`. Raises the same errors as `run`."""
        asleep_sec = _suspended_sec()
        with self._translate_rpc_errors():
            self.call("mallorn.begin", candidate_key, timeout_sec)
            result = work()
            self.call("mallorn.end")
        if _suspended_sec() - asleep_sec > _NAP_SEC:  # TVM's timer kept counting
            raise Unavailable("this machine was suspended: the timing is repeated")
        return result

    def free_memory(self) -> int:
        """Return the free memory in bytes; negative if unknown. Raises Unavailable."""
        with _raise_device_lost():
            return int(self.call("mallorn.free_memory"))

    def read_load(self) -> Load:
        """Return other programs' load on the host since last call. Raises Unavailable."""
        with _raise_device_lost():
            return _LOAD.validate_json(self.call("mallorn.load"))

    def reserve_host(self, wait_sec: float) -> None:
        """Reserve the host for a timing. Raises Unavailable if kept for `wait_sec`."""
        deadline_sec = time.monotonic() + wait_sec
        with _raise_device_lost():
            while not self.call("mallorn.hold", _HOLD_SEC):
                if time.monotonic() > deadline_sec:
                    raise Unavailable(
                        f"other jobs timed candidates on the device's host for {wait_sec:g} s",
                        hint="mallorn devices",
                    )

    def find_session_error(self) -> str | None:
        try:
            self.call("mallorn.end")
        except _BROKEN as error:
            return str(error)
        return None

    def random_args(self, spec: Arguments) -> list[Tensor]:
        """Create random arguments on the device. Raises the errors of `run`."""
        with self._translate_rpc_errors():
            return self._args.of_program(spec.args, spec.ranges)

    def copy_args(self, arrays: Sequence[Any]) -> list[Tensor]:
        """Copy a candidate's arguments to the device. Raises the errors of `run`."""
        with self._translate_rpc_errors():
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
        """Time `count` series of `number` runs each. Return the mean time of each series
        and what disturbed it. With `cold`, a GPU's L2 cache is flushed before each run.
        Raises CandidateFailed if the device's answer is invalid."""
        timer = "mallorn.time_cold_slices" if cold else "mallorn.time_slices"
        answer = self.call(timer, library, function or self.entry, self.kind, number, count, *tensors)
        try:
            times = _SLICE_TIMES.validate_json(answer)
        except ValueError:
            raise CandidateFailed("the device returned an answer that holds no times") from None
        if len(times.slices) != count:
            raise CandidateFailed(f"the device returned {len(times.slices)} times instead of {count}")
        return times

    def close(self) -> None:
        self._args.clear()
        self._functions.clear()
        del self.session, self.device  # the device refers to the session, too
        session_gateway.keep_descriptor_zero()

    def _empty(self, shape: Sequence[int], dtype: str) -> Tensor:
        return empty(tuple(shape), dtype, self.device)

    def call(self, name: str, *args: Any) -> Any:
        if name not in self._functions:
            self._functions[name] = self.session.get_function(name)
        return self._functions[name](*args)

    @contextmanager
    def _translate_rpc_errors(self) -> Iterator[None]:
        """Turn RPC errors into CandidateFailed if the candidate caused them, else into
        Unavailable. The candidate is to blame if its session still works, or if the
        device's server saw it crash."""
        try:
            yield
        except _BROKEN as error:
            raise self._classify_error(str(error)) from None

    def _classify_error(self, text: str) -> CandidateFailed | Unavailable:
        text = text.removeprefix("RPCError: Error caught from RPC call:").strip()
        if DEATH_NOTICE not in text:
            death = self.find_session_error()  # a session with a broken GPU context ends at the next call
            if death is not None and DEATH_NOTICE not in death:
                return _device_lost_error(text)
            if (error := self._kind.explain_error(text)) is not None:
                return (CandidateTimeout if error.timed_out else CandidateFailed)(error.message)
            if death is None:
                return CandidateFailed(text)
            text = death
        if "SIGALRM" in text and UNHEARD in text:
            return CandidateUnheard("the device heard nothing from its client until the deadline")
        if "SIGALRM" in text:
            return CandidateTimeout("did not return in time")
        return CandidateKilled(text) if "SIGKILL" in text else CandidateFailed(text)


class RemoteModel:
    """A whole model and its inputs on a device. Callers have to set time limits."""

    def __init__(self, device: RemoteDevice, library: Path, inputs: Path) -> None:
        self._device = device
        self._name = device.upload(library)
        with np.load(inputs) as archive:
            arrays = [np.asarray(archive[name], order="C") for name in archive.files]
        self._args = device.copy_args(arrays)
        self._machine = self._create_machine()
        self._kernel_vm: Any = None

    def outputs(self) -> list[Any]:
        self._machine.invoke_stateful(RemoteDevice.entry)
        return [tensor.numpy() for tensor in self._outputs()]

    def time(self, number: int) -> Sequence[float]:
        """Return the seconds of each of `number` runs, after a warm-up run."""
        timer = self._machine.time_evaluator("invoke_stateful", self._device.device, number=1, repeat=number)
        results: Sequence[float] = timer(RemoteDevice.entry).results
        return results

    def time_kernels(self, seconds: float) -> dict[str, float]:
        """Return each kernel's microseconds per run, measured without recorded graphs."""
        if self._kernel_vm is None:
            self._kernel_vm = self._create_machine(uses_graphs=False)
        answer = self._device.call("mallorn.kernel_times", self._kernel_vm.module, self._device.kind, seconds)
        times: dict[str, float] = json.loads(answer)
        return times

    def _create_machine(self, uses_graphs: bool = True) -> VirtualMachine:
        """Return a virtual machine of the model with its inputs. If not `uses_graphs`, it
        launches even the kernels of recorded graphs one by one, so that each can be timed."""
        self._device.call("mallorn.use_graphs", int(uses_graphs))
        machine = VirtualMachine(self._device.session.load_module(self._name), self._device.device)
        machine.set_input(RemoteDevice.entry, *self._args)
        return machine

    def _outputs(self, *place: int) -> Iterator[Any]:
        """Yield the output tensors in order, including those in nested tuples. TVM's
        get_outputs would leave a reference cycle that keeps the session open for a while."""
        module = self._machine.module
        arity = module["get_output_arity"](RemoteDevice.entry, *place)
        if arity == -1:
            yield module["get_output"](RemoteDevice.entry, *place)
        for index in range(arity):
            yield from self._outputs(*place, index)


@contextmanager
def _raise_device_lost() -> Iterator[None]:
    """Turn errors into Unavailable, in calls that run no candidate: the device was lost."""
    try:
        yield
    except _UNREADABLE as error:
        raise _device_lost_error(f"{type(error).__name__}: {error}") from None


def _suspended_sec() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def _device_lost_error(text: str) -> Unavailable:
    if reports_too_many_files(text):  # this host is at fault, not the device
        return too_many_files_error("a connection")
    return Unavailable(f"the device was lost: {text}", hint="mallorn device, on the host that measures")


def connect(tracker: Address, key: str, wait_sec: float, like: DeviceClass | None = None) -> rpc.RPCSession:
    """Wait for a free device of a class and open a session with it. Raises NoDevice if no
    such device is registered. Raises Unavailable if all stay busy, cannot be reached,
    refuse a session, or lack the secret key that our devices share."""
    deadline_sec = time.monotonic() + wait_sec
    while True:
        left_sec = max(0.0, deadline_sec - time.monotonic())
        session_offer = session_gateway.ask_for_session(_gateway(), tracker, key, left_sec, like)
        try:
            return _open(session_offer)
        except _BROKEN as error:
            text = str(error)
        session_gateway.keep_descriptor_zero()
        _, marker, reason = text.partition(NO_SESSION)
        if marker or time.monotonic() > deadline_sec:
            raise _device_lost_error(reason.strip() or text)
        log.warning("a device did not open a session: %s", text)
        time.sleep(0.1)


def _open(session_offer: session_gateway.OpenSession) -> rpc.RPCSession:
    """Open a session and check that its device has the fleet's key. Raises Unavailable if
    it has not, RuntimeError or AttributeError if the session breaks."""
    try:
        session = rpc.connect("127.0.0.1", session_offer.port, session_offer.ticket)
    except RuntimeError:
        with suppress(OSError):  # TVM's client closed it
            os.close(0)
        raise
    if session_offer.keys:
        challenge = secrets.token_hex(16)
        proof = str(session.get_function("mallorn.prove")(challenge))
        if not any(own.is_valid_signature(proof, "device", challenge) for own in session_offer.keys):
            raise Unavailable(
                "the process that answers at the device's address does not have our fleet's key",
                hint=HINT,
            )
    return session


@lru_cache
def _gateway() -> socket.socket:
    connection = socket.socket(fileno=int(os.environ.pop(session_gateway.GATEWAY_VARIABLE)))
    connection.set_inheritable(False)
    return connection
