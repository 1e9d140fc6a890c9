"""Write compiled models as libraries with their own thread pool; thread_pool.c explains why.

The machine code of each CPU kernel is cached while this process lives: a job compiles its
model several times, with schedules that differ in some tasks. TVM's own build would compile
all kernels again, on one core.
"""

import logging
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax
from tvm.relax import vm_build

from graphc.export.code_generation import compiled
from graphc.export.compile_network import is_cpu, pool_options, thread_pool
from graphc.export.embed_weights import embedding
from workers.device.detect_host import available_cores
from workers.tvm.linker import compiler, link_shared

NO_COMPILER: Final = (
    "no C compiler: libraries use TVM's threads, which lose much time beside other programs "
    "(apt-get install gcc)"
)
log = logging.getLogger(__name__)
MOST_BYTES: Final = 256 << 20  # of cached objects
_cached: dict[str, bytes] = {}


def export_kernels(mod: Any, library: str, target: Any) -> None:
    """Compile a scheduled module for a CPU as `relax.build` does, and link its kernels' objects."""
    with target:
        mod = relax.get_pipeline("default_build")(relax.transform.DeadCodeElimination()(mod))
    builder = relax.ExecBuilder()
    kernels = vm_build._filter_tir(vm_build._vmcodegen(builder, mod))
    constants = dict(mod.attrs.get("const_name_to_constant", {})) if mod.attrs else {}
    executable = vm_build._vmlink(builder, target, params=constants)
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        objects = _write_objects({} if kernels is None else kernels.functions, target, Path(folder))
        export_with_pool(executable, library, target, objects)


def _write_objects(kernels: Any, target: Any, folder: Path) -> Sequence[str]:
    texts = [f"{target}\n{tvm.ir.save_json(kernel)}" for kernel in kernels.values()]
    keyed = dict(zip([sha256(text.encode()).hexdigest() for text in texts], kernels.items(), strict=True))
    new = {key: named for key, named in keyed.items() if key not in _cached}
    with ThreadPoolExecutor(available_cores()) as pool:  # TVM releases Python's global lock
        for key, code in zip(new, pool.map(partial(_compile, target, folder), new.items()), strict=True):
            _cached[key] = code
    paths = [folder / f"{key}.o" for key in keyed]
    for key, path in zip(keyed, paths, strict=True):
        path.write_bytes(_cached[key])
    while len(_cached) > 1 and sum(map(len, _cached.values())) > MOST_BYTES:
        del _cached[next(iter(_cached))]  # the oldest
    return [str(path) for path in paths]


def _compile(target: Any, folder: Path, keyed: tuple[str, tuple[Any, Any]]) -> bytes:
    key, (name, kernel) = keyed
    path = folder / f"new-{key}.o"  # a fused function's name may be too long for a file name
    compiled(tvm.IRModule({name: kernel}), target).write_to_file(str(path))
    return path.read_bytes()


def export_with_pool(executable: Any, library: str, target: Any, kernels: Sequence[str] = ()) -> None:
    """Write the library as `compile_network.export` does, but link without a compiler driver.

    `kernels` are paths of further objects to link.
    """
    embedded = embedding() if is_cpu(target) else {}
    pool = pool_object(tuple(pool_options(target))) if is_cpu(target) else b""

    def link(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
        pool_path = Path(output).with_suffix(".pool.o")
        try:
            if pool:
                pool_path.write_bytes(pool)
            link_shared(output, [*objects, *kernels, *([str(pool_path)] if pool else [])], options)
        finally:
            pool_path.unlink(missing_ok=True)

    link.output_format = "so"  # type: ignore[attr-defined]
    executable.export_library(library, fcompile=link, **embedded)


@lru_cache(maxsize=8)
def pool_object(options: tuple[str, ...]) -> bytes:
    """Return the thread pool as an object file's bytes; empty if it cannot be compiled."""
    command = compiler()
    if command is None:
        log.warning(NO_COMPILER)
        return b""
    with tempfile.TemporaryDirectory(prefix="mallorn-pool-") as folder, thread_pool() as source:
        object_path = Path(folder, "pool.o")
        result = subprocess.run(
            [command, *options, "-fPIC", "-c", str(source), "-o", str(object_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            log.warning("%s does not compile a library's threads, TVM's are used: %s", command, result.stdout)
            return b""
        return object_path.read_bytes()
