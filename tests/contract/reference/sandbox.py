"""The page of the sandbox: what each kind of process may do, and nothing else."""

from typing import Final, NamedTuple

from mallorn.kinds.cuda.device import cuda_device
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn.workers.sandbox import sandbox, seccomp, system_paths
from mallorn.workers.subprocesses.child_process import Child
from mallorn_research.replay.measurer import RecordingReader
from tests.contract.reference.markdown import code, page, table
from tests.fixtures.system_calls import CALLS


class Kind(NamedTuple):
    """A kind of sandboxed process: what it may do, and its files beyond the system's and its room."""

    spawns: bool
    takes_sockets: bool
    drives_gpu: bool
    reads: str


def _kind(child: type[Child], reads: str) -> Kind:
    return Kind(child.SPAWNS, child.TAKES_SOCKETS, False, reads)


KINDS: Final = {
    "model compiler": _kind(ModelCompiler, "folders of the same job"),
    "candidate compiler": _kind(CandidateCompiler, ""),
    "reader of datasets and schedules": _kind(ModelCompiler, "the named files"),
    "reader of recordings": _kind(RecordingReader, "the recording"),
    "engine": _kind(Engine, "folders of the same job"),
    "runner": _kind(Runner, "folders of the same job"),
    "session on a CPU": Kind(False, False, False, "the locks of the host's cores"),
    "session on a GPU": Kind(False, False, True, "the GPU's nodes in `/dev`"),
    "batch on a CPU": Kind(False, False, False, "the batch"),
    "batch on a GPU": Kind(False, False, True, "the batch, the GPU's nodes in `/dev`"),
}
HEADINGS: Final = ("process", "starts programs", "sockets", "also reads")
WORDS: Final = (
    "What a process in the whole sandbox (`full`) may do. All else is refused: files with EACCES, system "
    "calls with EPERM, calls newer than Linux 6.17 with ENOSYS.",
    "Each process writes one folder, its room, and may not run what it writes there.",
)


def allowed_calls(kind: Kind) -> set[str]:
    """The system calls that a process of a kind may make whatever their arguments."""
    groups = {"": True, "programs": kind.spawns, "gpu": kind.drives_gpu}
    tables = zip(groups.values(), (seccomp.ALLOWED, seccomp.PROGRAMS, seccomp.GPU), strict=True)
    return {name for is_allowed, calls in tables if is_allowed for name in calls}


def _sockets(kind: Kind) -> str:
    if kind.takes_sockets:
        return "those that its parent sends"
    return "Unix sockets without a connection" if kind.drives_gpu else "none"


def _names(names: object) -> str:
    return ", ".join(code(name) for name in sorted(names))  # type: ignore[call-overload]


def sandbox_page() -> str:
    """The page."""
    rows = [
        (name, "yes" if kind.spawns else "no", _sockets(kind), kind.reads) for name, kind in KINDS.items()
    ]
    known = {*seccomp.ALLOWED, *seccomp.PROGRAMS, *seccomp.GPU, *seccomp.SPECIAL}
    etc = [f"/etc/{name}" for name in system_paths._ETC]
    devices = [f"/dev/{name}" for name in system_paths._DEVICES]
    places = [
        ("read and run", f"{_names(system_paths._PROGRAMS)}, this Python, CUDA's toolkit"),
        ("read", f"{_names(system_paths._FACTS)}, {_names(etc)}, packages on Python's path"),
        ("use", _names(devices)),
    ]
    places.append(("use, on cuda", _names([f"/dev/{node}" for node in cuda_device._OPENED])))
    special = [
        ("`clone`", "threads; processes only if it starts programs; never namespaces"),
        ("`clone3`", "ENOSYS, so that the C library uses `clone`"),
        ("`prlimit64`", "of the process itself"),
        ("`prctl`", "names, reading, stricter rules for itself, and its end with its parent"),
        ("`ioctl`", "all but the requests of terminals; of those: sizes and modes of the descriptor"),
        ("`sendto`", "without an address"),
        (
            "`socket`, `connect`",
            "in a runner, they return 0 and do nothing; with a GPU, `socket` makes Unix sockets",
        ),
    ]
    limits = [
        ("size of a file", f"{sandbox.FILE_BYTES >> 30} GiB"),
        ("private memory", "the memory of the host"),
        ("processes and threads", f"{sandbox.MORE_PROCESSES} more than the host had"),
        ("core dumps", "none"),
    ]
    return page(
        "Sandbox",
        *WORDS,
        "",
        *table(HEADINGS, rows),
        "## Files",
        "",
        *table(("right", "paths"), places),
        "## System calls",
        "",
        f"Allowed: {_names(seccomp.ALLOWED)}.",
        "",
        f"If it starts programs, also: {_names(seccomp.PROGRAMS)}.",
        "",
        f"With a GPU, also: {_names(seccomp.GPU)}.",
        "",
        *table(("call", "allowed"), special),
        f"Refused: {_names(set(CALLS) - known)}.",
        "",
        "## Limits",
        "",
        *table(("limit", "value"), limits),
    )
