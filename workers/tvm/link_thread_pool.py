"""Links libraries with threads of their own, where there is a C compiler; thread_pool.c says why."""

import logging
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from graphc.export.compile_network import is_cpu, pool_options, thread_pool
from graphc.export.embed_weights import embedding
from workers.tvm.linker import compiler, link_shared

NO_COMPILER: Final = (
    "no C compiler: libraries use TVM's threads, which lose much time beside other programs "
    "(apt-get install gcc)"
)
log = logging.getLogger(__name__)


def export_with_pool(executable: Any, library: str, target: Any, kernels: Sequence[str] = ()) -> None:
    """Write the library as `compiling.export` does, without a compiler driver for the rest of it.

    `kernels` are objects that are linked, too.
    """
    embedded = embedding() if is_cpu(target) else {}
    pool = pool_object(tuple(pool_options(target))) if is_cpu(target) else b""

    def link(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: Any) -> None:
        beside = Path(output).with_suffix(".pool.o")
        try:
            if pool:
                beside.write_bytes(pool)
            link_shared(output, [*objects, *kernels, *([str(beside)] if pool else [])], options)
        finally:
            beside.unlink(missing_ok=True)

    link.output_format = "so"  # type: ignore[attr-defined]
    executable.export_library(library, fcompile=link, **embedded)


@lru_cache(maxsize=8)
def pool_object(options: tuple[str, ...]) -> bytes:
    """The threads as an object file; empty where nothing compiles it."""
    command = compiler()
    if command is None:
        log.warning(NO_COMPILER)
        return b""
    with tempfile.TemporaryDirectory(prefix="mallorn-pool-") as folder, thread_pool() as source:
        made = Path(folder, "pool.o")
        done = subprocess.run(
            [command, *options, "-fPIC", "-c", str(source), "-o", str(made)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            log.warning("%s does not compile a library's threads, TVM's are used: %s", command, done.stdout)
            return b""
        return made.read_bytes()
