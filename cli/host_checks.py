"""Independent checks of what this machine needs to tune a model."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from mallorn.cli.doctor_checks.findings import Finding
from mallorn.client.model_upload import ModelUpload
from mallorn.client.onnx_export import find_model_file
from mallorn.core.errors import HostFault, InvalidModel, MallornError, PluginFailed, StorageFull
from mallorn.core.installation import MissingPackage, missing_package
from mallorn.core.registry import failed_kinds, list_kinds
from mallorn.core.target_kind import TargetKind
from mallorn.core.targets import LOCAL, NATIVE, Target
from mallorn.stack.supervised_process import search_path

if TYPE_CHECKING:
    from mallorn.workers.interfaces.model_compiler import ModelCompiler

LEAST_FREE_BYTES: Final = 256 << 20
CPUS: Final = Path("/sys/devices/system/cpu")
SLOW: Final = 0.85  # share of the fastest core's clock; a CPU's preferred cores differ by less
LINKED: Final = ("tvm", "onnx", "onnxruntime", "xgboost")  # packages that load shared libraries
MISSING_LIBRARY: Final = ": cannot open shared object file"  # after the name that the loader looked for
#: Packages of Debian and Ubuntu by shared library.
DEBIAN_PACKAGES: Final = {
    "libgcc_s.so.1": "libgcc-s1",
    "libgomp.so.1": "libgomp1",
    "libstdc++.so.6": "libstdc++6",
    "libz.so.1": "zlib1g",
}
WAYS_TO_FULL: Final = (
    ("MALLORN_SANDBOX", "unset MALLORN_SANDBOX"),
    ("seccomp filter supports", "use a machine with an x86_64 or aarch64 CPU"),
    (
        "seccomp",
        "a container runtime that lets seccomp(2) through: docker run without --security-opt seccomp=FILE",
    ),
    ("walls around signals", "Linux 6.12 or newer, on the host of a container too"),
    ("Landlock", "Linux 6.12 or newer with `landlock` in lsm=, and in a container Docker 23 or newer"),
)


def run_check(name: str, check: Callable[[], str], necessary: bool = True) -> Finding:
    """Run a check, and return its text or its error as a finding."""
    try:
        return Finding(name, True, check(), necessary=necessary)
    except MallornError as error:
        return Finding(name, False, error.message, error.hint, necessary)


def check_linker(toolchain: str = NATIVE) -> str:
    """Link a library as a test, by default for this host's CPU; then also say how other
    CPUs' are linked. Raises HostFault if that fails."""
    from mallorn.workers.host.linker import INSTALL_CROSS, check_linking
    from mallorn.workers.process.toolchains import describe_cross_linkers, other_instruction_sets

    if lacks := other_instruction_sets().get(toolchain):  # as workers report it
        raise HostFault(f"this host lacks {lacks}", hint=INSTALL_CROSS)
    old_path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = search_path()  # the linker is the one that the service finds
    try:
        with TemporaryDirectory(prefix="mallorn-check-") as folder:
            words = f"{check_linking(Path(folder), toolchain)} makes shared libraries"
            return f"{words}; {describe_cross_linkers()}" if toolchain == NATIVE else words
    finally:
        os.environ["PATH"] = old_path


def check_shared_libraries() -> str:
    """Import each installed package with native code in a child process. Raises HostFault if one fails."""
    commands = {name: [sys.executable, "-c", f"import {name}"] for name in LINKED if find_spec(name)}
    imports = {name: Popen(command, stderr=PIPE, text=True) for name, command in commands.items()}
    errors = {name: process.communicate()[1] for name, process in imports.items()}
    for name, error in errors.items():
        reason = (error.strip() or "killed").splitlines()[-1]
        if MISSING_LIBRARY in reason:
            library = reason.partition(MISSING_LIBRARY)[0].rpartition(" ")[2]
            package = DEBIAN_PACKAGES.get(library)
            hint = f"apt-get install {package}" if package else f"apt-file search {library}"
            raise HostFault(f"{name} does not load: this machine lacks {library}", hint=hint)
        if imports[name].returncode:
            raise HostFault(f"{name} does not load: {reason}", hint=f"python -c 'import {name}'")
    return f"those of {', '.join(errors)} load" if errors else f"none of {', '.join(LINKED)} is installed"


def check_kinds() -> str:
    """Return the kinds of hardware. Raises PluginFailed if a package's does not load."""
    from mallorn.graphc.core.graph_kind import load_graph_kinds

    failed = [each.message for each in failed_kinds()]
    failed += [each for each in load_graph_kinds().values() if isinstance(each, str)]
    if failed:
        raise PluginFailed("; ".join(failed), hint="repair the package: docs/kinds.md")
    return f"of hardware: {', '.join(sorted(kind.name for kind in list_kinds()))}"


def check_free_space(data: Path) -> str:
    """Return a text on the free space for `data`. Raises StorageFull below 256 MiB."""
    place = next(folder for folder in (data, *data.parents) if folder.exists())
    free_bytes = shutil.disk_usage(place).free
    words = f"{free_bytes / 1e9:.1f} GB free for {data}"
    if free_bytes < LEAST_FREE_BYTES:
        raise StorageFull(f"only {words}", hint="free some room, or name another place with --data DIR")
    return words


def tvm_process(
    model: Path | None = None, writes: Sequence[Path] = ()
) -> AbstractContextManager["ModelCompiler"]:
    """Return a sandboxed process in which TVM loads at the first call. It reads no files of
    the user but the model and its weights, and writes to the folders `writes`."""
    from mallorn.workers.interfaces.model_compiler import open_sandboxed_compiler

    files = list[Path]()
    with suppress(InvalidModel):  # the command's own check says what is wrong
        if model is not None:
            files.append(file := find_model_file(model))
            files += [file.parent / name for name in ModelUpload.of(file).weights]
    return open_sandboxed_compiler(*files, writes=writes, env={"PATH": search_path()})


def check_tvm(graphs: "ModelCompiler", target: Target) -> str:
    """Load TVM in a child process. Raises MissingPackage if absent, else ChildError."""
    for library in ("tvm", "onnx"):
        if find_spec(library) is None:
            raise missing_package(f"{library} is not installed", "server,worker")
    graphs.warm_up(target.text)
    return "loads in a process of its own"


def check_kernel(target: Target) -> str:
    """Build a kernel in a sandbox; run it unless it is for another CPU. Raises HostFault."""
    from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
    from mallorn.workers.interfaces.whole_model_engine import Engine
    from mallorn.workers.process.toolchains import other_instruction_sets
    from mallorn.workers.subprocesses.errors import ChildError

    with TemporaryDirectory(prefix="mallorn-check-") as folder:
        room, env = Path(folder), {"PATH": search_path(), "TVM_NUM_THREADS": str(target.num_cores)}
        try:
            with CandidateCompiler(env=env, room=room) as maker, Engine(env=env, room=room) as runner:
                probe = maker.build_one_probe(target.text, folder)
                if target.toolchain in other_instruction_sets():
                    return f"a kernel was built; a device for {target.toolchain} can run it"
                [run] = runner.time_probes(folder, [probe])
        except ChildError as error:
            message = f"no kernel for {target} can be built and run here: {error.message}"
            raise HostFault(message, hint="mallorn doctor") from None
    return f"a kernel was built and ran in {run.mean_sec * 1e6:.1f} us"


def resolve_target(text: str, is_elsewhere: bool) -> tuple[Target, str]:
    """Return the target, and a text that compares it with this machine's.

    Raises InvalidTarget if this machine cannot run it, unless its device `is_elsewhere`.
    """
    from mallorn.workers.device.detect_host import detect_target
    from mallorn.workers.device.target_support import check_executable, resolve_target
    from mallorn.workers.process.toolchains import other_instruction_sets

    local_target = detect_target()
    if text == LOCAL:
        return local_target, f"local is {local_target}"
    target = resolve_target(text)
    if not is_elsewhere and target.toolchain not in other_instruction_sets():
        check_executable(target)
    return target, f"{target}" if target == local_target else f"{target}; this machine is {local_target}"


def check_toolchain(hardware: TargetKind, has_device: bool) -> Iterator[Finding]:
    """Check for what a kind of hardware needs to build here, and if `has_device`, to measure."""
    from mallorn.workers.host.builder_kind import BuilderKind

    for name, is_met, words, command, is_necessary in hardware.part(BuilderKind).requirements(has_device):
        yield Finding(name, is_met, words, command, necessary=is_necessary)


def check_model_import(
    graphs: "ModelCompiler", file: Path, shapes: dict[str, list[int]], target: Target
) -> str:
    """Describe a model's inputs, or its part that compiles; if none, raise InvalidModel."""
    try:
        report = graphs.read_signature(str(file.absolute()), shapes)
    except InvalidModel:
        region = (
            graphs.find_region(str(file.absolute()), target.text, shapes, None)
            if target.runs_on_cores
            else None
        )
        if region is None:
            raise
        return f"{file}: {region.sentence}"
    inputs = ", ".join(f"{spec.name} {spec.shape}" for spec in report.inputs)
    return f"{file}: {sum(report.operators.values())} operators; {inputs}"


def check_sandbox_level(mode: str) -> str:
    """Check that models and candidates run in a full sandbox. Raises HostFault if not."""
    from mallorn.workers.sandbox.sandbox import OFF, WHOLE
    from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support

    level = "off by MALLORN_SANDBOX" if mode == OFF else probe_sandbox_support(mode)
    if level == WHOLE:
        return "full: Landlock, seccomp and limits close around what runs models and candidates"
    way = next((way for word, way in WAYS_TO_FULL if word in level), "mallorn doctor")
    raise HostFault(f"the sandbox is {level}; until that is mended, run only models that you trust", hint=way)


def check_core_speeds(cpus: Path = CPUS) -> str:
    """Raise HostFault if some cores are slower than others, as all get equal work."""
    clocks = {}
    for core in sorted(os.sched_getaffinity(0)):
        try:
            clocks[core] = int((cpus / f"cpu{core}" / "cpufreq" / "cpuinfo_max_freq").read_text())
        except (OSError, ValueError):
            clocks[core] = 0  # unknown, as in most virtual machines
    fast = [core for core, clock in clocks.items() if clock >= SLOW * max(clocks.values())]
    if len(fast) == len(clocks):
        return f"{len(clocks)} of one kind"
    slow, these = len(clocks) - len(fast), ",".join(map(str, fast))
    message = f"{slow} of {len(clocks)} cores are slow, and each core gets an equal part of the work"
    raise HostFault(message, hint=f"start the service with   taskset -c {these} mallorn up")


def check_onnxruntime() -> str:
    """Raise MissingPackage if onnxruntime, to compare results with, is not installed."""
    if find_spec("onnxruntime") is None:
        raise MissingPackage("onnxruntime, the reference, is not installed", hint="pip install onnxruntime")
    return "installed: results are compared with it"


def check_host(data: Path) -> None:
    """Run the fast checks before a service starts here. Raises the first check's error."""
    from mallorn.workers.host.host_lock import CoreLock

    check_linker()
    CoreLock().files()
    check_free_space(data)
