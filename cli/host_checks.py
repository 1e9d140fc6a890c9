"""What this machine must have before anything is tuned on it, each looked at for itself."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from cli.doctor_checks.findings import Finding
from mallorn.core.errors import HostFault, MallornError, StorageFull
from mallorn.core.install_command import MissingPackage, install_line
from mallorn.core.targets import LOCAL, Target
from stack.supervised_process import search_path

if TYPE_CHECKING:
    from workers.interfaces.model_compiler import ModelCompiler

LEAST_FREE_BYTES: Final = 256 << 20
CPUS: Final = Path("/sys/devices/system/cpu")
SLOW: Final = 0.85  # of the fastest core's clock; those that are favoured differ by less
WAYS_TO_FULL: Final = (
    ("MALLORN_SANDBOX", "unset MALLORN_SANDBOX"),
    (
        "seccomp",
        "a container runtime that lets seccomp(2) through: docker run without --security-opt seccomp=FILE",
    ),
    ("walls around signals", "Linux 6.12 or newer, on the host of a container too"),
    ("Landlock", "Linux 6.12 or newer with `landlock` in lsm=, and in a container Docker 23 or newer"),
)


def look(name: str, check: Callable[[], str], necessary: bool = True) -> Finding:
    """The words of a check, or of the error that it ends with."""
    try:
        return Finding(name, True, check(), necessary=necessary)
    except MallornError as error:
        return Finding(name, False, error.message, error.hint, necessary)


def compiler() -> str:
    """Link a library. Raises HostFault where nothing can be linked."""
    from workers.tvm.linker import check_linking

    with _path_of_our_children(), TemporaryDirectory(prefix="mallorn-check-") as folder:
        return f"{check_linking(Path(folder))} makes shared libraries"


def disk(data: Path) -> str:
    """Raises StorageFull where a job would run out of room at once."""
    place = next(folder for folder in (data, *data.parents) if folder.exists())
    free_bytes = shutil.disk_usage(place).free
    words = f"{free_bytes / 1e9:.1f} GB free for {data}"
    if free_bytes < LEAST_FREE_BYTES:
        raise StorageFull(f"only {words}", hint="free some room, or name another place with --data DIR")
    return words


def tvm_process() -> "ModelCompiler":
    """A process that loads TVM when it is first asked; it ends with the block."""
    from workers.interfaces.model_compiler import ModelCompiler

    return ModelCompiler(env={"PATH": search_path()}, name="TVM")


def tvm(graphs: "ModelCompiler", target: Target) -> str:
    """Raises what the child that loads TVM ended with, for the target."""
    for library in ("tvm", "onnx"):
        if find_spec(library) is None:
            raise MissingPackage(f"{library} is not installed", hint=install_line("server,worker"))
    graphs.warm_up(target.text)
    return "loads in a process of its own"


def kernel(target: Target) -> str:
    """Build a kernel and run it as candidates are, in processes behind walls. Raises HostFault."""
    from workers.interfaces.candidate_compiler import CandidateCompiler
    from workers.interfaces.whole_model_engine import Engine
    from workers.subprocesses.errors import ChildError

    with TemporaryDirectory(prefix="mallorn-check-") as folder:
        room, env = Path(folder), {"PATH": search_path(), "TVM_NUM_THREADS": str(target.num_cores)}
        try:
            with CandidateCompiler(env=env, room=room) as maker, Engine(env=env, room=room) as runner:
                [run] = runner.clock(folder, [maker.build_one_probe(target.text, folder)])
        except ChildError as error:
            message = f"no kernel for {target} is built and run here: {error.message}"
            raise HostFault(message, hint="mallorn doctor") from None
    return f"one was built and ran, in {run.mean_sec * 1e6:.1f} us"


def target_here(text: str, elsewhere: bool) -> tuple[Target, str]:
    """The target, beside what this machine is. Raises InvalidTarget for one that it cannot run, unless
    `elsewhere`.
    """
    from workers.device.detect_host import detect_target
    from workers.device.target_support import check_executable, target_on_this_machine

    here = detect_target()
    if text == LOCAL:
        return here, f"local is {here}"
    wanted = target_on_this_machine(text)
    if not elsewhere:
        check_executable(wanted)
    return wanted, f"{wanted}" if wanted == here else f"{wanted}; this machine is {here}"


def cuda(is_gpu_elsewhere: bool) -> Iterator[Finding]:
    """Look for what compiles and runs CUDA kernels; a GPU elsewhere needs no driver here."""
    from workers.tvm.cuda_toolchain import find_toolchain

    found = find_toolchain()
    for what, command in found.missing:
        yield Finding("cuda", False, f"this machine lacks {what}", command)
    if not found.missing:
        yield Finding("cuda", True, f"{found.nvcc} compiles kernels, {found.cudart} runs them")
    if found.has_driver:
        yield Finding("driver", True, "libcuda.so.1 loads")
    else:
        command = "apt-get install nvidia-driver-580   (in a container: docker run --gpus all)"
        words = "this machine lacks NVIDIA's driver libcuda.so.1"
        yield Finding("driver", False, words, command, necessary=not is_gpu_elsewhere)


def model(graphs: "ModelCompiler", file: Path, shapes: dict[str, list[int]]) -> str:
    """Raises InvalidModel where TVM cannot read it, or a size of its inputs is not known."""
    found = graphs.look(str(file.absolute()), shapes)
    inputs = ", ".join(f"{each.name} {each.shape}" for each in found.inputs)
    return f"{file}: {sum(found.operators.values())} operators; {inputs}"


def sandbox(mode: str) -> str:
    """Raises HostFault where less than all walls close around what strangers made."""
    from workers.sandbox.sandbox import OFF, WHOLE
    from workers.sandbox.sandbox_support import reached

    told = "off by MALLORN_SANDBOX" if mode == OFF else reached(mode)
    if told == WHOLE:
        return "full: Landlock, seccomp and limits close around what runs models and candidates"
    way = next((way for word, way in WAYS_TO_FULL if word in told), "mallorn doctor")
    raise HostFault(f"{told}; serve nobody's models but your own so", hint=way)


def cores(cpus: Path = CPUS) -> str:
    """Raises HostFault where some cores are much slower: each is given an equal part of the work."""
    clocks = {core: _clock(cpus / f"cpu{core}") for core in sorted(os.sched_getaffinity(0))}
    fast = [core for core, clock in clocks.items() if clock >= SLOW * max(clocks.values())]
    if len(fast) == len(clocks):
        return f"{len(clocks)} of one kind"
    slow, these = len(clocks) - len(fast), ",".join(map(str, fast))
    message = f"{slow} of {len(clocks)} are slow ones, and each is given an equal part of the work"
    raise HostFault(message, hint=f"start the service with   taskset -c {these} mallorn up")


def _clock(core: Path) -> int:
    """The highest that a core may have; 0 where nobody tells, as in most virtual machines."""
    try:
        return int((core / "cpufreq" / "cpuinfo_max_freq").read_text())
    except (OSError, ValueError):
        return 0


def onnxruntime() -> str:
    """Raises MissingPackage; results are then compared with TVM's own build alone."""
    if find_spec("onnxruntime") is None:
        raise MissingPackage("not installed: nothing to compare results with", hint="pip install onnxruntime")
    return "installed: results are compared with it"


def check_host(data: Path) -> None:
    """The checks that cost nothing, before a service is started here. Raises what the first one finds."""
    from workers.host.core_lock import CoreLock

    compiler()
    CoreLock().files()
    disk(data)


@contextmanager
def _path_of_our_children() -> Iterator[None]:
    """Programs are looked for where the parts of a stack on this machine look for them."""
    before = os.environ.get("PATH")
    os.environ["PATH"] = search_path()
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before
