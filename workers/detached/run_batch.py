"""Times the candidates of a batch on a machine without Mallorn, with only TVM's runtime and numpy.

    python run_batch.py FILE [--seconds N] [--results RESULTS] [--sandbox MODE]

`mallorn batch next` writes FILE, and `mallorn batch take` reads RESULTS
(FILE.results.jsonl). Each result is on disk before the next candidate begins. If the
program is started again, it continues where it ended or was killed. The exit status is 0 if
all candidates are timed, 3 if some are left, 2 if the machine or a file is refused.

FILE contains the modules that time candidates, detect disturbances and make the sandbox in
which candidates run; device servers use the same ones, which need nothing else of Mallorn.
"""

import argparse
import ctypes
import fcntl
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from contextlib import ExitStack, closing, suppress
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

Json = Any  # an object, as json reads it
FORMAT: Final = 2
MANIFEST: Final = "batch.json"
MODULES: Final = "modules.zip"  # Mallorn's modules; without them Mallorn must be installed
START_SEC: Final = 300.0  # for loading TVM and a GPU's context
CHECK_SEC: Final = 60.0
GRACE_SEC: Final = 20.0  # for loading a library and making its arguments
MOST_STARTS: Final = 2  # of a candidate during whose run this program itself was killed
SANDBOX_MODES: Final = ("require", "best-effort", "off")
ALIKE: Final = ("host_class", "tvm_version", "threads")  # equal for devices whose times compare
PR_SET_PDEATHSIG: Final = 1
_stopping: list[int] = []  # signals that asked this program to end


class BatchRefused(Exception):
    """The machine or a file does not fit the batch; the message says why."""


def main() -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(description="Time the candidates of a batch of `mallorn batch next`.")
    parser.add_argument("file", type=Path, help="the batch: a file, or a folder that holds what was in it")
    parser.add_argument("--seconds", type=float, default=None, help="end after so many seconds")
    parser.add_argument("--results", type=Path, default=None, help="default: FILE.results.jsonl")
    words = "if this kernel lacks a part: run nothing (require), use the rest (best-effort: default)"
    parser.add_argument("--sandbox", choices=SANDBOX_MODES, default=SANDBOX_MODES[1], help=words)
    parser.add_argument("--serve", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve_calls(options.file, options.serve, options.sandbox)
    results = options.results or Path(f"{str(options.file).rstrip('/')}.results.jsonl")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signal_number, _frame: _stopping.append(signal_number))
    try:
        with tempfile.TemporaryDirectory(prefix="batch-") as folder:
            batch_dir = unpack(options.file, Path(folder))
            remaining = run_calls(batch_dir, results, options.seconds, options.sandbox)
    except BatchRefused as error:
        sys.stderr.write(f"refused: {error}\n")
        return 2
    print_message(
        f"{remaining} left; start it again" if remaining else f"all is timed: mallorn batch take {results}"
    )
    return 3 if remaining else 0


def print_message(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def unpack(file: Path, folder: Path) -> Path:
    """Return the folder with a batch's files: `file` itself, or `folder` after extraction.

    Raises BatchRefused if `file` is not a complete batch.
    """
    if file.is_dir():
        return file
    try:
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if Path(name).name != name:
                    raise BatchRefused(f"{file} names a file outside the batch: {name}")
                archive.extract(name, folder)
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise BatchRefused(f"{file} is not a batch, or is incomplete: {error}") from None
    return folder


def run_calls(
    batch_dir: Path, results_path: Path, seconds: float | None = None, sandbox: str = SANDBOX_MODES[1]
) -> int:
    """Carry out calls that have no result, for at most `seconds`; return how many remain.

    Raises BatchRefused if a file was changed, if the results are of another batch, or if
    the machine does not fit the batch.
    """
    end_sec = inf if seconds is None else time.monotonic() + seconds
    text = (batch_dir / MANIFEST).read_bytes()
    batch = json.loads(text)
    if batch["format"] != FORMAT:
        raise BatchRefused(f"the batch has format {batch['format']}: use the run_batch.py of that version")
    for name, digest in batch["files"].items():
        file = batch_dir / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise BatchRefused(f"{name} was changed after the batch was made")
    mark = {"format": FORMAT, "batch": batch["batch"], "digest": hashlib.sha256(text).hexdigest()}
    results = ResultsFile(results_path, mark, {call["key"]: call.get("group") for call in batch["calls"]})
    remaining = [call for call in batch["calls"] if call["key"] not in results.done]
    with closing(results), ExitStack() as stack:
        if remaining:
            session = stack.enter_context(closing(ChildSession(batch_dir, sandbox)))
            results.record_device(session.device)
            print_message(f"the sandbox around candidates is {session.device['sandbox']}")
        while remaining and time.monotonic() < end_sec and not _stopping:
            key = remaining[0]["key"]
            if results.starts.get(key, 0) >= MOST_STARTS:
                words = f"whatever ran it was killed {MOST_STARTS} times"
                answer: Json | None = {"outcome": "worker_lost", "error": words}
            else:
                results.append({"start": key})
                answer = session.run_call({**remaining[0], "best_us": results.best_us(remaining[0])}, end_sec)
            if answer is None:
                results.append({"stop": key})
                break
            remaining.pop(0)
            results.append({"key": key, **answer})
            run_us = answer.get("run_us")
            words = f"{median(run_us):.1f} us" if run_us else answer.get("error", "")[:200]
            print_message(f"{key} {answer['outcome']} {words}")
    return len(remaining)


class ResultsFile:
    """The file of results: one JSON object per line, each flushed to disk at once."""

    def __init__(self, path: Path, mark: Json, groups: Json) -> None:
        """Open, lock and read the file. `mark` identifies the batch; `groups` maps calls to
        programs. Raises BatchRefused if the file is of another batch."""
        self.done: set[str] = set()
        self.starts: dict[str, int] = {}
        self._bests: dict[str, float] = {}
        self._device: Json | None = None
        self._path, self._mark, self._groups = path, mark, groups
        self._file = path.open("a+b")
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BatchRefused(f"another process writes {self._path}") from None
            except OSError:
                pass  # this file system has no locks: go on without
            self._file.seek(0)
            content = self._file.read()
            end = content.rfind(b"\n") + 1
            self._file.truncate(end)  # drop a line whose writer was killed in the middle
            for line in content[:end].splitlines():
                self._apply_line(json.loads(line))
        except BaseException:
            self._file.close()
            raise

    def _apply_line(self, line: Json) -> None:
        if "device" in line:
            if {name: line.get(name) for name in self._mark} != self._mark:
                raise BatchRefused(f"{self._path} holds results of another batch")
            self._device = line["device"]
        elif "key" not in line:  # a stop takes back the start of its candidate
            key, step = (line["start"], 1) if "start" in line else (line["stop"], -1)
            self.starts[key] = self.starts.get(key, 0) + step
        else:
            self.done.add(line["key"])
            if (group := self._groups.get(line["key"])) and line.get("run_us"):
                self._bests[group] = min(median(line["run_us"]), self._bests.get(group, inf))

    def record_device(self, device: Json) -> None:
        """Record which device measures next. Raises BatchRefused if its class differs."""
        old_device = self._device or device
        new_class = [device[name] for name in ALIKE]
        old_class = [old_device[name] for name in ALIKE]
        if new_class != old_class:
            raise BatchRefused(f"the batch was begun on {old_class}; times of {new_class} do not compare")
        self.append({**self._mark, "device": device})

    def best_us(self, call: Json) -> float | None:
        """Return the best known time of a call's program in microseconds, or None."""
        best = min(call.get("best_us") or inf, self._bests.get(call.get("group") or "", inf))
        return None if best == inf else best

    def append(self, line: Json) -> None:
        """Write a line and wait until it is on disk."""
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._apply_line(line)

    def close(self) -> None:
        self._file.close()


class ChildSession:
    """A child process that uses the device. If a candidate crashes it, a new one starts."""

    def __init__(self, folder: Path, sandbox: str) -> None:
        import_modules(folder)
        try:
            from mallorn.workers.sandbox.sandbox import allowed_environment
        except ImportError as error:
            raise BatchRefused(f"the batch's modules cannot be loaded: {error}") from None
        self._room = tempfile.TemporaryDirectory(prefix="batch-room-")  # all that the child may write
        room, options = self._room.name, ["--sandbox", sandbox, str(folder)]
        self._command = [sys.executable, os.path.abspath(__file__), "--serve", room, *options]
        self._env = allowed_environment() | {"TMPDIR": room}
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.device = self._start()
        except BaseException:
            self.close()
            raise

    def run_call(self, call: Json, end_sec: float) -> Json | None:
        """Run a call and return its result, or None if `end_sec` or a signal is first."""
        if self._process is None:
            self._start()
        began_sec, pipe = time.monotonic(), self._process.stdin if self._process else None
        limit_sec = call_timeout_sec(call) + 2 * GRACE_SEC + (CHECK_SEC if call.get("check") else 0.0)
        with suppress(BrokenPipeError):  # the child died: how it ended is the result
            if pipe is not None:
                pipe.write(json.dumps(call).encode() + b"\n")
                pipe.flush()
        line = self._line(min(end_sec, began_sec + limit_sec))
        if line is None:
            status = self.kill_child()
            if status is None and (_stopping or time.monotonic() >= end_sec):
                return None
            if status is None or status == -signal.SIGALRM:
                words = f"did not return in time ({call['timeout_sec']:g} s)"
                result = {"outcome": "run_timeout", "error": words}
            else:
                name = signal.Signals(-status).name if status < 0 else f"status {status}"
                # SIGKILL comes from the host, perhaps not because of the candidate.
                outcome = "worker_lost" if status == -signal.SIGKILL else "run_error"
                result = {"outcome": outcome, "error": f"its process ended by {name}"}
        else:
            result = json.loads(line)
            if result["outcome"] not in ("ok", "wrong_result"):
                self.kill_child()  # a GPU's context may be broken
        return {**result, "run_ms": round((time.monotonic() - began_sec) * 1e3, 3)}

    def _start(self) -> Json:
        pipe = subprocess.PIPE
        # A terminal would obey what a candidate prints, and a file of it could fill the disk.
        self._process = subprocess.Popen(
            self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            env=self._env,
            start_new_session=True,
        )
        self._read = b""
        line = self._line(time.monotonic() + START_SEC)
        answer: Json = json.loads(line) if line else {"refused": "TVM's runtime does not load here"}
        if "refused" in answer:
            self.kill_child()
            raise BatchRefused(answer["refused"])
        device: Json = answer["device"]
        return device

    def _line(self, until_sec: float) -> bytes | None:
        """Return the child's next line, or None if it ends or has to be stopped."""
        if self._process is None or self._process.stdout is None:
            return None
        while b"\n" not in self._read:
            left_sec = until_sec - time.monotonic()
            if left_sec <= 0 or _stopping:
                return None
            if select.select([self._process.stdout], [], [], min(left_sec, 0.2))[0]:
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    self._process.wait()
                    return None
                self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line

    def kill_child(self) -> int | None:
        """Kill the child; return its exit status if it had already ended, else None."""
        process, self._process = self._process, None
        if process is None:
            return None
        status = process.poll()
        process.kill()
        with suppress(BrokenPipeError):
            process.communicate()
        return status

    def close(self) -> None:
        """Kill the child and delete what it wrote."""
        self.kill_child()
        self._room.cleanup()


def repeat_limit_sec(call: Json) -> float:
    """Return the seconds that may be spent on repeating timings that were disturbed."""
    _, repeat, min_repeat_ms = call.get("evaluator") or (0, 0, 0)
    return float(repeat * min_repeat_ms / 1e3)


def call_timeout_sec(call: Json) -> float:
    """Return the time limit of a candidate in seconds, after which it is killed."""
    return float(call["timeout_sec"] + repeat_limit_sec(call))


def import_modules(folder: Path) -> None:
    """Make the batch's modules importable."""
    if (folder / MODULES).is_file() and str(folder / MODULES) not in sys.path:
        sys.path.insert(0, str(folder / MODULES))


def serve_calls(folder: Path, room: Path, sandbox: str) -> int:
    """Run as the child process: read calls from stdin, as lines of JSON, and answer each."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with answers

    def answer(**fields: object) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    batch = json.loads((folder / MANIFEST).read_bytes())
    import_modules(folder)
    try:
        device = TargetDevice(batch, folder, room, sandbox)
    except BatchRefused as error:
        answer(refused=str(error))
        return 2
    answer(device=device.identity)
    for line in sys.stdin:
        call = json.loads(line)
        try:
            answer(**device.run_call(folder, call))
        except Exception as error:
            answer(outcome="run_error", error=f"{type(error).__name__}: {error}"[-1000:])
    return 0


class TargetDevice:
    """The device of this machine in TVM. Raises BatchRefused if it does not fit."""

    def __init__(self, batch: Json, folder: Path, room: Path, sandbox: str) -> None:
        from mallorn.workers.host.process_priority import raise_priority

        self._kind = "cpu" if batch["needs"]["kind"] in ("llvm", "c") else str(batch["needs"]["kind"])
        cores = len(os.sched_getaffinity(0))
        if self._kind == "cpu":
            _check_processor(batch["needs"], cores)
        threads = batch["needs"]["cores"] if self._kind == "cpu" else cores
        os.environ.update(TVM_NUM_THREADS=str(threads), TVM_USE_RUNTIME_LIB="1")
        if threads < (os.cpu_count() or 1):
            os.environ.setdefault("TVM_BIND_THREADS", "0")
        is_raised = self._kind == "cpu" and raise_priority()  # the sandbox forbids it
        meter, gpu = _load_cuda(batch["needs"]) if self._kind == "cuda" else (None, "")
        level = _enter_sandbox(self._kind, folder, room, sandbox)
        try:
            import tvm
            import tvm_ffi

            from mallorn.workers.device.slice_timer import NEXT_SLICE, SliceTimer
        except (ImportError, OSError) as error:
            raise BatchRefused(f"TVM's runtime or the batch's modules cannot be loaded: {error}") from None
        if tvm.__version__ != batch["tvm"]:
            raise BatchRefused(
                f"the batch was built by TVM {batch['tvm']}, but this Python has TVM {tvm.__version__}: "
                f"pip install apache-tvm=={batch['tvm']}"
            )
        self._tvm, self._device = tvm, tvm.device(self._kind, 0)
        if not self._device.exist:
            raise BatchRefused(f"this machine has no {self._kind} device")
        self._timer = SliceTimer(self._kind == "cpu", is_raised, meter)
        tvm_ffi.register_global_func(NEXT_SLICE, self._timer.count_slice, override=True)
        version, thread_count = str(tvm.__version__), int(tvm.runtime.num_threads())
        name = "" if self._kind == "cpu" else str(self._device.device_name) or self._kind
        self.identity = describe_device(version, thread_count, name, gpu)
        self.identity["sandbox"] = level
        own_class = [self.identity["host_class"], version, thread_count]
        if batch["like"] and batch["like"] != own_class:
            job_class = batch["like"][0]
            words = f"the job's times are of {job_class}; times of {own_class[0]} do not compare"
            raise BatchRefused(words)
        self._arguments: tuple[Json, list[Any]] = None, []
        self._checked: tuple[Json, list[Any]] = None, []
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(-6, 0x80)  # fill fresh memory with nonsense, so that unwritten values are wrong

    def run_call(self, folder: Path, call: Json) -> Json:
        """Check a library's results, time it, or both, and return what was found."""
        library = self._tvm.runtime.load_module(str(folder / call["library"]))
        result: Json = {"outcome": "ok"}
        if check := call.get("check"):
            signal.setitimer(signal.ITIMER_REAL, CHECK_SEC)
            result["max_error"], wrong = self._check_outputs(folder, library, check)
            if wrong:
                return {**result, "outcome": "wrong_result", "error": wrong}
        if call.get("evaluator"):
            signal.setitimer(signal.ITIMER_REAL, call_timeout_sec(call) + GRACE_SEC)
            if self._arguments[0] != call["args"]:  # else reuse those of the last call
                self._arguments = None, []
                tensors = [self._copy(value) for value in random_timing_arguments(call["args"])]
                self._arguments = call["args"], tensors
            tensors = self._arguments[1]
            signal.setitimer(signal.ITIMER_REAL, call_timeout_sec(call))
            result |= self._time_library(library, tensors, call)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return result

    def _copy(self, value: Any) -> Any:
        return self._tvm.runtime.empty(value.shape, str(value.dtype), self._device).copyfrom(value)

    def _time_library(self, library: Any, tensors: list[Any], call: Json) -> Json:
        """Return the valid run times, and how other programs disturbed them."""
        from mallorn.workers.measure.stopping.incremental_timing import CandidateTimes

        time_runs = self._timer.time_cold_slices if call.get("cold") else self._timer.time_slices

        def time_slices(number: int, count: int) -> Any:
            return time_runs(library, "main", self._kind, number, count, *tensors)

        times = CandidateTimes(repeat_limit_sec(call))
        rough = library.time_evaluator("main", self._device, number=1, repeat=1, min_repeat_ms=5)
        rough_sec = min(rough(*tensors).results)
        evaluator, run_us = Timing(*call["evaluator"]), list[float]()
        while (timing := next_timing(call["stopping"], evaluator, run_us, call["best_us"])) is not None:
            run_us += times.time_once(timing, rough_sec, time_slices)
        return {
            "run_us": times.run_us,
            "disturbed": times.other_programs_share,
            "disturbance": times.disturbance(),
        }

    def _check_outputs(self, folder: Path, library: Any, check: Json) -> tuple[float, str]:
        """Run a library once and compare its outputs with the expected ones. Return the
        largest error, and a description if it is too large.

        Output buffers hold garbage before the run, so that values of an earlier candidate
        cannot pass.
        """
        import numpy as np

        from mallorn.graphc.export.output_errors import relative_error, rounded_outputs_error
        from mallorn.workers.device.random_and_saved_arrays import draw_arguments

        draws, seed = check["args"], check["seed"]
        if self._checked[0] != (draws, seed):
            self._checked = (draws, seed), draw_arguments(draws, seed)
        values = list(self._checked[1])
        if fingerprint(values, check["outputs"]) != check["inputs"]:
            raise ValueError("numpy has other random numbers than the worker, so outputs cannot be compared")
        for index in check["outputs"]:
            garbage = np.frombuffer(b"\x7f" * values[index].nbytes, values[index].dtype)
            values[index] = garbage.reshape(values[index].shape)
        tensors = [self._copy(value) for value in values]
        library["main"](*tensors)
        self._device.sync()
        worst, wrong = 0.0, ""
        with np.load(folder / check["expected"]) as references:
            for index, tolerance in zip(check["outputs"], check["tolerance"], strict=True):
                output = np.asarray(tensors[index].numpy(), "float64").reshape(-1)
                places = f"places_{index}"
                if places in references.files:
                    output = output[references[places]]
                error_of = rounded_outputs_error if check.get("rounds") else relative_error
                error = error_of(output, references[f"values_{index}"])
                worst = max(worst, error)
                if not error <= tolerance:
                    wrong = f"relative error {error:.2g}, allowed {tolerance:.2g}"
        return (worst if worst < inf else 1e30), wrong


def _enter_sandbox(kind: str, folder: Path, room: Path, mode: str) -> str:
    """Enter the sandbox; return its level. Raises BatchRefused if `mode` requires more."""
    from mallorn.workers.sandbox.landlock import READ
    from mallorn.workers.sandbox.sandbox import OFF, REQUIRE, WHOLE, SandboxSpec, enter_sandbox
    from mallorn.workers.sandbox.system_paths import accelerator_paths

    if mode == OFF:
        return OFF
    paths = ((str(folder.absolute()), READ), *accelerator_paths(kind))
    level = enter_sandbox(SandboxSpec(room, drives_gpu=kind == "cuda", others=paths))
    if mode == REQUIRE and level != WHOLE:
        message = f"the sandbox of this host is {level}: --sandbox best-effort uses what there is"
        raise BatchRefused(message)
    return level


def _check_processor(needs: Json, cores: int) -> None:
    from mallorn.workers.device.cpu_speed_limits import cpu_info

    if needs["machine"] != os.uname().machine:
        raise BatchRefused(f"the batch is for {needs['machine']}, and this machine is {os.uname().machine}")
    if needs["cores"] > cores:
        raise BatchRefused(f"the batch is for {needs['cores']} cores, and this process may use {cores}")
    cpu = cpu_info()
    flags = set((cpu.get("flags") or cpu.get("Features") or "").split())
    if absent_flags := sorted(set(needs["flags"]) - flags):
        raise BatchRefused(f"this CPU lacks {', '.join(absent_flags[:4])}, which the batch needs")


def _load_cuda(needs: Json) -> tuple[Any, str]:
    """Load CUDA for the first visible GPU; return its meter and a suffix of `host_class`."""
    from mallorn.core.errors import MallornError
    from mallorn.workers.device.cuda_driver import CudaDriver, load_cuda_runtime
    from mallorn.workers.device.gpu_meter import GpuMeter

    try:
        gpus = CudaDriver(ctypes.CDLL).gpus()
        signal.alarm(0)  # the driver answered
        load_cuda_runtime()
    except MallornError as error:
        raise BatchRefused(str(error)) from None
    if not gpus:
        raise BatchRefused("this machine has no cuda device")
    arch = str(needs.get("arch", "")).removeprefix("sm_")
    own, is_exact, arch = str(gpus[0].capability), arch[-1:] in ("a", "f"), arch.rstrip("af")
    if arch and not (own == arch if is_exact else own[:-1] == arch[:-1] and own[-1] >= arch[-1]):
        words = f"the batch is for {needs['arch']}, and this GPU is sm_{own} ({gpus[0].name})"
        raise BatchRefused(words)
    meter = GpuMeter(gpus[0].uuid)
    return meter, f"+{gpus[0].driver}{meter.power_limit()}"


def describe_device(tvm_version: str, threads: int, accelerator: str = "", gpu: str = "") -> Json:
    """Describe this device. Devices with comparable times get the same `host_class`."""
    from mallorn.workers.device.cpu_speed_limits import cpu_info, describe_cpus

    cpus = describe_cpus(cpu_info(), len(os.sched_getaffinity(0)))
    if accelerator:
        cpus["host_class"] += f"+{accelerator.replace(' ', '-')}{gpu}"
    boot_id = ""
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    boot_id += cpus["hostname"]
    return {
        "name": f"{cpus['hostname']}-batch",
        "host_id": hashlib.sha256(boot_id.encode()).hexdigest()[:16],
        "threads": threads,
        "tvm_version": tvm_version,
        "accelerator": accelerator,
        **cpus,
    }


def random_timing_arguments(args: Json) -> list[Any]:
    """Return random arguments for timings, the same that a device server would draw."""
    from mallorn.workers.device.random_and_saved_arrays import random_values

    return [
        random_values(tuple(shape), dtype, low, high, seed)
        for seed, (dtype, shape, low, high) in enumerate(args)
    ]


def fingerprint(values: list[Any], outputs: list[int]) -> int:
    """Return a checksum of all values that are not outputs."""
    total = 0
    for index, value in enumerate(values):
        if index not in outputs:
            total = zlib.crc32(value.tobytes(), total)
    return total


class Timing(NamedTuple):
    """The length of one timing: `repeat` means of `number` runs that last
    `min_repeat_ms` together."""

    number: int
    repeat: int
    min_repeat_ms: int


def next_timing(
    stopping: str, evaluator: Timing, run_us: list[float], best_us: float | None
) -> Timing | None:
    """Return the next timing by the named stopping rule, or None if no more are needed."""
    from mallorn.workers.measure.stopping.slice_precision import BEHIND, next_slice_options

    behind = BEHIND if stopping == "racing" else None
    return next_slice_options(evaluator, run_us, None if stopping == "fixed" else best_us, behind, Timing)


if __name__ == "__main__":
    sys.exit(main())
