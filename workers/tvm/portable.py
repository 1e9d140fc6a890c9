"""Programs as any processor can run them: an answer to check others against is computed where a worker is."""

from typing import Any

import tvm
import tvm_ffi
from tvm.ir import StringImm
from tvm.tirx import AttrStmt

from workers.tvm.templates.quads import plain

_IMPORT = "pragma_import_llvm"


def portable(mod: Any) -> Any:
    """The program with functions in LLVM's words that name no instruction of a processor."""
    functions = {var: tvm_ffi.structural_map(each, (AttrStmt, _plain)) for var, each in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs)


def _plain(statement: Any) -> Any:
    if statement.attr_key != _IMPORT:
        return statement
    text = StringImm(plain(str(statement.value.value)))
    return AttrStmt(statement.node, statement.attr_key, text, statement.body)
