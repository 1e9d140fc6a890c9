"""Puts a model's weights into its library as they are, where code of any size can reach across.

TVM makes a constant of LLVM's of them: four copies more in memory, and the linker refuses more than 2 GB.
"""

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import tvm

ASSEMBLERS = (("as",), ("cc", "-c"), ("gcc", "-c"), ("clang", "-c"))
# Sections of large data lie behind all others.
SECTIONS = {"x86_64": '.lrodata, "al"'}
ALIGNMENT = 64


def embedding() -> dict[str, Any]:
    """What `export_library` is told; nothing where no assembler is, and TVM goes its own way."""
    return {"fpack_imports": _pack} if sys.platform == "linux" and _assembler() else {}


def _pack(module: Any, _is_system: bool, prefix: str, folder: str) -> str:
    """An object file of all that TVM keeps beside a library's code."""
    content, source = Path(folder, f"{prefix}imports.bin"), Path(folder, f"{prefix}imports.s")
    content.write_bytes(memoryview(tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy()))
    source.write_text(
        _assembly(prefix + tvm.get_global_func("runtime.ModuleImportsBlobName")(), content.name)
    )
    made = source.with_suffix(".o")
    subprocess.run([*_assembler(), "-o", made.name, source.name], cwd=folder, check=True)
    content.unlink()
    return str(made)


def _assembly(name: str, content: str) -> str:
    return f"""
.section {SECTIONS.get(platform.machine(), '.rodata, "a"')}, %progbits
.global {name}
.balign {ALIGNMENT}
{name}:
.incbin "{content}"
.section .note.GNU-stack, "", %progbits
"""


def _assembler() -> list[str]:
    """The command that assembles; empty where there is none."""
    found = ([path, *rest] for name, *rest in ASSEMBLERS if (path := shutil.which(name)))
    return next(found, [])
