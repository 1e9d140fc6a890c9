"""Embed a model's weights in its library as raw data, in a section for large data.

TVM would make LLVM constants of them, which needs four more copies and is limited to 2 GB.
"""

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import tvm

ASSEMBLERS = (("as",), ("cc", "-c"), ("gcc", "-c"), ("clang", "-c"))
# Large-data sections are placed after all others.
SECTIONS = {"x86_64": '.lrodata, "al"'}
ALIGNMENT = 64


def weight_embedding_options() -> dict[str, Any]:
    """Return `export_library` arguments that embed weights; empty without an assembler."""
    return {"fpack_imports": _write_object_file} if sys.platform == "linux" and _assembler() else {}


def _write_object_file(module: Any, _is_system: bool, prefix: str, folder: str) -> str:
    """Write an object file with the data that TVM stores in a library; return its path."""
    content, source = Path(folder, f"{prefix}imports.bin"), Path(folder, f"{prefix}imports.s")
    content.write_bytes(memoryview(tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy()))
    name = prefix + tvm.get_global_func("runtime.ModuleImportsBlobName")()
    source.write_text(f"""
.section {SECTIONS.get(platform.machine(), '.rodata, "a"')}, %progbits
.global {name}
.balign {ALIGNMENT}
{name}:
.incbin "{content.name}"
.section .note.GNU-stack, "", %progbits
""")
    object_file = source.with_suffix(".o")
    subprocess.run([*_assembler(), "-o", object_file.name, source.name], cwd=folder, check=True)
    content.unlink()
    return str(object_file)


def _assembler() -> list[str]:
    commands = ([path, *options] for name, *options in ASSEMBLERS if (path := shutil.which(name)))
    return next(commands, [])
