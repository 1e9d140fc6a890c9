"""Machine code of a model's kernels, kept kernel by kernel while this process lives.

A job compiles its model several times, with schedules that differ in some tasks: what is there is
linked again. TVM's own build makes all kernels anew, on one core.
"""

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax
from tvm.relax import vm_build

from graphc.export.code_generation import compiled
from workers.device.detect_host import available_cores
from workers.tvm.link_thread_pool import export_with_pool

MOST_BYTES: Final = 256 << 20  # of the objects that are kept
_known: dict[str, bytes] = {}


def export_kernels(mod: Any, library: str, target: Any) -> None:
    """Compile a scheduled module for a CPU as `relax.build` does, and link its kernels' objects."""
    with target:
        mod = relax.get_pipeline("default_build")(relax.transform.DeadCodeElimination()(mod))
    builder = relax.ExecBuilder()
    kernels = vm_build._filter_tir(vm_build._vmcodegen(builder, mod))
    constants = dict(mod.attrs.get("const_name_to_constant", {})) if mod.attrs else {}
    executable = vm_build._vmlink(builder, target, params=constants)
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        objects = _written({} if kernels is None else kernels.functions, target, Path(folder))
        export_with_pool(executable, library, target, objects)


def _written(kernels: Any, target: Any, folder: Path) -> Sequence[str]:
    texts = [f"{target}\n{tvm.ir.save_json(kernel)}" for kernel in kernels.values()]
    keyed = dict(zip([sha256(text.encode()).hexdigest() for text in texts], kernels.items(), strict=True))
    new = {key: named for key, named in keyed.items() if key not in _known}
    with ThreadPoolExecutor(available_cores()) as pool:  # TVM lets Python go on
        for key, code in zip(new, pool.map(partial(_compiled, target, folder), new.values()), strict=True):
            _known[key] = code
    paths = [folder / f"{key}.o" for key in keyed]
    for key, path in zip(keyed, paths, strict=True):
        path.write_bytes(_known[key])
    while len(_known) > 1 and sum(map(len, _known.values())) > MOST_BYTES:
        del _known[next(iter(_known))]  # the oldest
    return [str(path) for path in paths]


def _compiled(target: Any, folder: Path, named: tuple[Any, Any]) -> bytes:
    name, kernel = named
    path = folder / f"new-{name.name_hint}.o"
    compiled(tvm.IRModule({name: kernel}), target).write_to_file(str(path))
    return path.read_bytes()
