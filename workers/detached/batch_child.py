"""Main module of the child process of run_batch.py: runs a batch's libraries on this machine.

It times as a device does, with the modules of devices and of their clients, and without RPC.
"""

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from mallorn.core.errors import HostFault
from mallorn.core.targets import Target
from mallorn.workers.device.detect_host import refresh_host_facts
from mallorn.workers.device.device_kind import device_kind, tvm_device_type
from mallorn.workers.device.prepare_session import prepare_session, runtime_facts, set_runtime_environment
from mallorn.workers.device.random_and_saved_arrays import (
    TimedArguments,
    checksum_inputs,
    draw_arguments,
    load_arrays,
    random_fill,
)
from mallorn.workers.device.slice_timing_result import SliceTimes
from mallorn.workers.device.target_support import find_unsupported_reason
from mallorn.workers.interfaces.output_comparison import Agreement, Reference
from mallorn.workers.measure.compare_outputs import compare_arrays
from mallorn.workers.measure.stopping.incremental_timing import CandidateTimes
from mallorn.workers.measure.stopping.stopping_rule import ENTRY, NamedRule, time_library
from mallorn.workers.sandbox.landlock import READ
from mallorn.workers.sandbox.sandbox import BEST_EFFORT, OFF, REQUIRE, WHOLE
from mallorn.workers.subprocesses.serve_calls import serve

Json = Any  # an object, as json reads it
GRACE_SEC: Final = 20.0  # for making a library's arguments
_LARGEST_ERROR: Final = 1e30  # JSON has no infinity


class TargetDevice:
    """The device of this machine on which a batch's libraries run."""

    def __init__(self, batch: Json, folder: Path, room: Path, sandbox: str) -> None:
        """Enter the sandbox, and describe the device as `identity`. `folder` holds the
        batch's files. Raises MallornError if this machine does not fit the batch."""
        needs, self._folder = batch["needs"], folder
        target = Target(needs["target"])
        if needs["machine"] != os.uname().machine:
            raise HostFault(f"the batch is for {needs['machine']}, this machine is {os.uname().machine}")
        kind = device_kind(target)
        if reason := find_unsupported_reason(target, needs["flags"]):
            raise HostFault(f"this machine cannot run the batch: {reason}")
        if (accelerator := kind.first()) is not None:
            kind.show_only(accelerator)
        set_runtime_environment(target)
        mode, paths = OFF if sandbox == OFF else BEST_EFFORT, [(str(folder.absolute()), READ)]
        uuid = accelerator.uuid if accelerator else ""
        is_raised, meter, level = prepare_session(target, uuid, room, paths, mode)
        if sandbox == REQUIRE and level != WHOLE:
            raise HostFault(f"the sandbox of this host is {level}: --sandbox best-effort uses what there is")

        import tvm
        import tvm_ffi

        from mallorn.workers.device.slice_timer import NEXT_SLICE, SliceTimer

        if tvm.__version__ != batch["tvm"]:
            built = f"the batch was built by TVM {batch['tvm']}, but this Python has TVM {tvm.__version__}"
            raise HostFault(f"{built}: pip install apache-tvm=={batch['tvm']}")
        facts: Any = runtime_facts(target, accelerator, meter)
        if not target.runs_on_cores and not facts["accelerator"]:
            raise HostFault(f"this machine has no {target.kind} device")
        # No process of the service shares locks with this one.
        self.identity: Json = {**refresh_host_facts(facts), "lock_file": "", "sandbox": level}
        self.identity["name"] = f"{self.identity['hostname']}-batch"
        own_class = [self.identity[name] for name in ("host_class", "tvm_version", "threads")]
        if batch["like"] not in (None, own_class):
            raise HostFault(f"the job's times are of {batch['like']}; times of {own_class} do not compare")
        self._tvm, self._kind = tvm, tvm_device_type(target)
        self._device = tvm.device(self._kind, 0)
        self._timer = SliceTimer(target.runs_on_cores, is_raised, meter, kind)
        tvm_ffi.register_global_func(NEXT_SLICE, self._timer.count_slice, override=True)
        self._args = TimedArguments(self._allocate, random_fill)
        self._drawn: tuple[Json, list[Any]] = None, []  # arguments of the last check

    def run_call(self, call: Json) -> Json:
        """Check a library's outputs, time it, or both; return the fields of a `LibraryRun`,
        and `max_error` of a check. SIGALRM ends this process at the call's deadline."""
        library = self._tvm.runtime.load_module(str(self._folder / call["library"]))
        result: Json = {"outcome": "ok"}
        if check := call.get("check"):
            signal.setitimer(signal.ITIMER_REAL, check["timeout_sec"])
            agreement = self._check_outputs(library, check)
            signal.setitimer(signal.ITIMER_REAL, 0)
            result["max_error"] = min(agreement.max_error, _LARGEST_ERROR)
            if not agreement.ok:
                return {**result, "outcome": "wrong_result", "error": agreement.description}
        if timing := call.get("timing"):
            limit_sec = timing["timeout_sec"] + timing["patience_sec"]
            signal.setitimer(signal.ITIMER_REAL, limit_sec + GRACE_SEC)
            tensors = self._args.of_program(timing["args"]["args"], timing["args"]["ranges"])
            signal.setitimer(signal.ITIMER_REAL, limit_sec)
            result |= self._time_library(library, tensors, timing)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return result

    def _time_library(self, library: Any, tensors: list[Any], timing: Json) -> Json:
        evaluator: Any = SimpleNamespace(**timing["evaluator"])
        time_runs = self._timer.time_cold_slices if evaluator.flush_l2 == "on" else self._timer.time_slices

        def time_slices(number: int, count: int) -> SliceTimes:
            return time_runs(library, ENTRY, self._kind, number, count, *tensors)

        times, rule = CandidateTimes(timing["patience_sec"]), NamedRule(timing["stopping"])
        run_us = time_library(
            times, library, self._device, tensors, rule, evaluator, timing["best_us"], time_slices
        )
        disturbed, disturbance = times.other_programs_share, times.disturbance()
        return {"run_us": run_us, "disturbed": disturbed, "disturbance": disturbance}

    def _check_outputs(self, library: Any, check: Json) -> Agreement:
        """Run a library once and compare its outputs with the expected ones.

        Output buffers hold garbage before the run: earlier candidates' values cannot pass.
        """
        draws, seed, by = check["args"], check["seed"], Reference(**check["reference"])
        if self._drawn[0] != (draws, seed):
            self._drawn = (draws, seed), draw_arguments(draws, seed)
        values = list(self._drawn[1])
        if checksum_inputs(values, by.outputs) != check["inputs"]:
            raise ValueError("numpy has other random numbers than the worker, so outputs cannot be compared")
        for index in by.outputs:
            garbage = np.frombuffer(b"\x7f" * values[index].nbytes, values[index].dtype)
            values[index] = garbage.reshape(values[index].shape)
        tensors = [self._allocate(value.shape, str(value.dtype)).copyfrom(value) for value in values]
        library[ENTRY](*tensors)
        self._device.sync()
        outputs = {f"arg_{index}": tensors[index].numpy() for index in by.outputs}
        return compare_arrays(outputs, load_arrays(str(self._folder / check["expected"])), by)

    def _allocate(self, shape: Any, dtype: str) -> Any:
        return self._tvm.runtime.empty(tuple(shape), dtype, self._device)


def main() -> None:
    """Answer the calls of run_batch.py."""
    devices: list[TargetDevice] = []

    def open_device(params: bytes) -> bytes:
        order = json.loads(params)
        del os.environ["TVM_BIND_THREADS"]  # of children that do not time
        places = Path(order["folder"]), Path(order["room"])
        devices.append(TargetDevice(order["batch"], *places, order["sandbox"]))
        return json.dumps(devices[0].identity).encode()

    serve(
        {
            "open_device": open_device,
            "run_call": lambda params: json.dumps(devices[0].run_call(json.loads(params))).encode(),
        }
    )


if __name__ == "__main__":
    main()
