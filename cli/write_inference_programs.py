"""Programs that call a compiled model, written beside it: run.py and run.cc, with its own inputs."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

from mallorn.core.targets import Target
from mallorn.core.values.graph_report import TensorSpec

MARK: Final = "Written by `mallorn compile`"
TEMPLATES: Final = files("cli") / "templates"
PROGRAMS: Final = ("run.py", "run.cc")
RUNTIME: Final = ("apache-tvm", "apache-tvm-ffi", "numpy")
FREE_RANGE: Final = (0, 1)
CPU: Final = ("cpu", "kDLCPU")
DEVICES: Final = {"llvm": CPU, "c": CPU, "cuda": ("cuda", "kDLCUDA")}
SITE: Final = "import importlib.util as u; print(u.find_spec('tvm_ffi').origin.rsplit('/', 2)[0])"


@dataclass(frozen=True, slots=True)
class Callee:
    """A compiled model: what stands in the programs that call it."""

    library: Path
    target: Target
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    input_ranges: Mapping[str, Sequence[int]]
    versions: Mapping[str, str]


def write_runners(callee: Callee) -> list[Path]:
    """The programs for this target, written; a file of that name that is somebody's own stays."""
    written = []
    for name, text in _programs(callee).items():
        path = callee.library.with_name(name)
        if not path.exists() or MARK in path.read_text(errors="replace"):
            path.write_text(text)
            written.append(path)
    return written


def run_lines(program: Path, library: Path, target: Target) -> list[str]:
    """What to type to run a program: in a shell, with the headers and libraries of TVM's wheels for C++."""
    if program.suffix == ".py":
        return [f"python {shlex.quote(str(program))}"]
    made = program.with_suffix("")
    libraries = f"-ltvm_runtime {'-ltvm_runtime_cuda ' if target.kind == 'cuda' else ''}-ltvm_ffi"
    folders = "-I$P/tvm_ffi/include -L$P/tvm_ffi/lib -L$P/tvm/lib"
    found = "-Wl,-rpath,$P/tvm_ffi/lib,-rpath,$P/tvm/lib -Wl,--no-as-needed"
    source, binary = shlex.quote(str(program)), shlex.quote(str(made))
    start = shlex.quote(str(made if made.is_absolute() or made.parent != Path() else f"./{made}"))
    return [
        f'P=$(python -c "{SITE}")',
        f"g++ -std=c++17 -O2 {source} -o {binary} {folders} {found} {libraries}",
        f"{start} {shlex.quote(str(library))}",
    ]


def _programs(callee: Callee) -> dict[str, str]:
    if callee.target.kind not in DEVICES:
        return {}
    python, cpp = DEVICES[callee.target.kind]
    names = [spec.name for spec in callee.outputs]
    common = {
        "library": callee.library.name,
        "library_text": json.dumps(callee.library.name),
        "packages": " ".join(f"{name}=={found}" for name, found in callee.versions.items()),
        "threads": str(callee.target.num_cores),
    }
    lines = [f"    {_python_input(spec, callee.input_ranges)}," for spec in callee.inputs]
    own = {"device": python, "inputs": "\n".join(lines), "outputs": repr(names)}
    specs = ",\n".join(f"    {_cpp_input(spec)}" for spec in callee.inputs)
    command = "\n".join(
        f"//   {line}" for line in run_lines(Path("run.cc"), Path(callee.library.name), callee.target)
    )
    theirs = {
        "device": cpp,
        "inputs": specs,
        "outputs": ", ".join(map(json.dumps, names)),
        "command": command,
    }
    templates = [Template((TEMPLATES / f"{name}.tmpl").read_text()) for name in PROGRAMS]
    filled = [text.substitute(common | more) for text, more in zip(templates, (own, theirs), strict=True)]
    return dict(zip(PROGRAMS, filled, strict=True))


def _python_input(spec: TensorSpec, ranges: Mapping[str, Sequence[int]]) -> str:
    whole = tuple(ranges.get(spec.name, FREE_RANGE))
    return repr((spec.name, spec.dtype, tuple(spec.shape), whole))


def _cpp_input(spec: TensorSpec) -> str:
    shape = ", ".join(map(str, spec.shape))
    return f"{{{json.dumps(spec.name)}, {json.dumps(spec.dtype)}, {{{shape}}}}}"
