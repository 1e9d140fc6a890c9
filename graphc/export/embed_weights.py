"""Embed a model's weights in its library as raw data, in a section for large data.

TVM would make LLVM constants of them, which needs four more copies and is limited to 2 GB.
The object file is written here, so that no assembler is needed, for whichever CPU.
"""

import struct
from pathlib import Path
from typing import Any, NamedTuple

import tvm


class ElfMachine(NamedTuple):
    """The number of a CPU architecture in ELF files, and its section for large data."""

    number: int
    section: bytes
    section_flags: int = 0


_ALLOCATED, _X86_64_LARGE = 0x2, 0x10000000
# Large-data sections are placed after all others. Only 64-bit, little-endian architectures.
MACHINES = {"x86_64": ElfMachine(62, b".lrodata", _X86_64_LARGE), "aarch64": ElfMachine(183, b".rodata")}
ALIGNMENT = 64
_HEADER, _SECTION_HEADER = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_GLOBAL_OBJECT = 0x11


def weight_embedding_options(architecture: str) -> dict[str, Any]:
    """Return `export_library` arguments that embed weights in a library for Linux.

    They are empty, so that TVM embeds them, for an architecture that is not in MACHINES.
    """
    machine = MACHINES.get(architecture)
    if machine is None:
        return {}

    def write_object_file(module: Any, _is_system: bool, prefix: str, folder: str) -> str:
        """Write an object file with the data that TVM stores in a library; return its path."""
        content = memoryview(tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy())
        symbol = prefix + tvm.get_global_func("runtime.ModuleImportsBlobName")()
        path = Path(folder, f"{prefix}imports.o")
        write_data_object(path, machine, symbol, content)
        return str(path)

    return {"fpack_imports": write_object_file}


def write_data_object(path: Path, machine: ElfMachine, symbol: str, content: memoryview) -> None:
    """Write a relocatable ELF file whose only global symbol is read-only data."""
    names = b"\0" + b"\0".join([machine.section, b".note.GNU-stack", b".symtab", b".strtab"]) + b"\0"
    strings = b"\0" + symbol.encode() + b"\0"
    symbols = bytes(_SYMBOL.size) + _SYMBOL.pack(1, _GLOBAL_OBJECT, 0, 1, 0, content.nbytes)
    # Name, type, flags, content, index of linked section, first global symbol, alignment, entry size
    sections: list[tuple[bytes, int, int, memoryview, int, int, int, int]] = [
        (machine.section, _PROGBITS, _ALLOCATED | machine.section_flags, content, 0, 0, ALIGNMENT, 0),
        (b".note.GNU-stack", _PROGBITS, 0, memoryview(b""), 0, 0, 1, 0),  # the stack is not executable
        (b".symtab", _SYMTAB, 0, memoryview(symbols), 4, 1, 8, _SYMBOL.size),
        (b".strtab", _STRTAB, 0, memoryview(strings), 0, 0, 1, 0),
        (b".strtab", _STRTAB, 0, memoryview(names), 0, 0, 1, 0),  # of the sections' names
    ]
    headers = [bytes(_SECTION_HEADER.size)]
    with path.open("wb") as file:
        file.write(bytes(_HEADER.size))
        for name, kind, flags, data, link, info, alignment, entry_size in sections:
            file.write(bytes(-file.tell() % alignment))
            name_at, start = names.index(b"\0" + name + b"\0") + 1, file.tell()
            header = _SECTION_HEADER.pack(
                name_at, kind, flags, 0, start, data.nbytes, link, info, alignment, entry_size
            )
            headers.append(header)
            file.write(data)
        file.write(bytes(-file.tell() % 8))
        table, count = file.tell(), len(headers)
        file.write(b"".join(headers))
        file.seek(0)
        ident = b"\x7fELF" + bytes([2, 1, 1])  # 64 bits, little-endian, version 1
        header_size, entry = _HEADER.size, _SECTION_HEADER.size
        file.write(
            _HEADER.pack(
                ident, 1, machine.number, 1, 0, 0, table, 0, header_size, 0, 0, entry, count, count - 1
            )
        )
