"""Compile a scheduled module to a library that takes only the model's inputs.

The library has its own thread pool, for reasons given in thread_pool.c. CPU kernels are
compiled in parallel; TVM's own build would compile them on one core. For another CPU than
this machine's, zig from PyPI links.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build
from tvm.support import cc

from mallorn.graphc.core.graph_kind import graph_kind_of
from mallorn.graphc.export import code_generation as codegen
from mallorn.graphc.export import export_checks
from mallorn.graphc.export.embed_weights import weight_embedding_options
from mallorn.graphc.export.library_metadata import metadata_source, target_architecture

Link = Callable[..., None]  # links for TVM's `export_library`, and compiles C sources, too
ZIG = "ziglang"
GLIBC = "2.28"  # the least that TVM's own wheels need


def build_library(
    mod: Any,
    library: str,
    target: Any,
    metadata: Mapping[str, object],
    cached: dict[str, bytes],
    link: Link | None = None,
    threads: int = 0,
) -> None:
    """Compile the module that `apply_schedules` returned, and write its library to a file.

    CPU kernels are compiled by `threads` threads, or by one per core. `cached` holds their
    object files by the hash of target and kernel. Also raises what `export_library` raises.
    """
    if not is_cpu(target):
        export_library(build_executable(mod, target), library, target, metadata, link)
        return
    with target:
        mod = relax.get_pipeline("default_build")(relax.transform.DeadCodeElimination()(mod))
    builder = relax.ExecBuilder()
    kernels = {
        sha256(f"{target}\n{tvm.ir.save_json(function)}".encode()).hexdigest(): {name: function}
        for name, function in vm_build._vmcodegen(builder, mod).functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    constants = dict(mod.attrs.get("const_name_to_constant", {})) if mod.attrs else {}
    executable = vm_build._vmlink(builder, target, params=constants)
    new_keys = [key for key in kernels if key not in cached]

    def compile_kernel(key: str) -> bytes:
        with TemporaryDirectory() as folder:
            path = Path(folder, "kernel.o")  # a fused function's name may be too long
            codegen.compile_to_library(tvm.IRModule(kernels[key]), target).write_to_file(str(path))
            return path.read_bytes()

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:  # TVM releases the GIL
        cached.update(zip(new_keys, pool.map(compile_kernel, new_keys), strict=True))
    export_library(executable, library, target, metadata, link, [cached[key] for key in kernels])


def build_executable(mod: Any, target: Any) -> Any:
    """Compile the module that `apply_schedules` returned by TVM's own build."""
    # Named explicitly: TVM's default for GPUs would fuse and schedule again.
    pipeline = relax.get_pipeline("default_build")
    with codegen.compilation_context(target, (), **graph_kind_of(target).build_options):
        return relax.build(mod, codegen.target_without_gather(target), relax_pipeline=pipeline)


def export_library(
    executable: Any,
    library: str,
    target: Any,
    metadata: Mapping[str, object],
    link: Link | None = None,
    kernels: Iterable[bytes] = (),
) -> None:
    """Write the library with its metadata and the object files of kernels to a file; on CPUs
    with its own thread pool. Raises Refused if it is for another CPU, and neither `link` is
    given nor zig is installed."""
    link = link or link_with(cross_compiler(target) or [cc.get_cc()])
    parts, options = {"metadata.c": metadata_source(metadata).encode()}, {}
    if is_cpu(target):
        parts["pool.c"] = (files("mallorn.graphc.export") / "thread_pool.c").read_bytes()
        cores = target.attrs.get("num-cores")
        flags = ["-O2", "-pthread", *([f"-DPOOL_THREADS={cores}"] if cores else [])]
        options = {"options": flags, **weight_embedding_options(target_architecture(target))}
    parts |= {f"{number}.o": kernel for number, kernel in enumerate(kernels)}
    with TemporaryDirectory() as folder:
        for name, content in parts.items():
            Path(folder, name).write_bytes(content)
        paths = [str(Path(folder, name)) for name in parts]
        executable.export_library(library, fcompile=link, addons=paths, **options)


def is_cpu(target: Any) -> bool:
    return bool(target.kind.name == "llvm")


def cross_compiler(target: Any) -> list[str]:
    """Return the command of a C compiler for the target's CPU; empty if this machine's will do.

    Raises Refused if zig is not installed.
    """
    architecture, host = target_architecture(target), platform.machine()
    if architecture == host:
        return []
    if find_spec(ZIG) is None:
        raise export_checks.Refused(
            f"to link a library for {architecture} on {host}, a linker for it is needed", f"pip install {ZIG}"
        )
    return [sys.executable, "-m", ZIG, "cc", "-target", f"{architecture}-linux-gnu.{GLIBC}"]


def link_with(command: Sequence[str]) -> Link:
    """Return a linker for TVM's `export_library` that compiles and links with this command."""

    def link(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
        inputs = [path for path in objects if not path.endswith(".c")]
        for source in (path for path in objects if path.endswith(".c")):
            inputs += ["-x", "c", source]  # g++ would read it as C++
        subprocess.run([*command, "-shared", "-fPIC", "-o", output, *(options or ()), *inputs], check=True)

    link.output_format = "so"  # type: ignore[attr-defined]
    return link
