"""Machine code of a model's kernels, kept kernel by kernel while this process lives.

A job compiles its model several times, with schedules that differ in some tasks: what is there already is
linked again. TVM's own build makes one module of all kernels, and all of it anew.
"""

import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import tvm
from tvm import relax
from tvm.relax import vm_build

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
    found = []
    for number, (name, kernel) in enumerate(kernels.items()):
        path = folder / f"{number}.o"
        _write(name, kernel, target, path)
        found.append(str(path))
    return found


def _write(name: Any, kernel: Any, target: Any, path: Path) -> None:
    key = sha256(f"{target}\n{tvm.ir.save_json(kernel)}".encode()).hexdigest()
    if key in _known:
        path.write_bytes(_known[key])
        return
    tvm.tirx.build(tvm.IRModule({name: kernel}), target=target).write_to_file(str(path))
    while _known and sum(map(len, _known.values())) > MOST_BYTES:
        del _known[next(iter(_known))]  # the oldest
    _known[key] = path.read_bytes()
