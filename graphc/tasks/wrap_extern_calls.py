"""Add root blocks to functions that only call a library, such as a sort."""

from typing import Any

from tvm.s_tir import SBlock, SBlockRealize

from mallorn.graphc.core.graph_pass import Leave, TensorFunctionPass
from mallorn.graphc.core.graph_rewriting import collect_nodes


class WrapExternCalls(TensorFunctionPass[None]):
    """Adds the root block that TVM's passes expect to functions that only call a library."""

    name, is_required = "wrap_extern_calls", True

    def check(self, function: Any) -> None:
        blocks = collect_nodes(function.body, SBlock)
        if not isinstance(function.body, SBlockRealize) or len(blocks) > 1:
            raise Leave("the function has blocks already")

    def rewrite(self, function: Any, facts: None) -> Any:
        root = SBlock([], [], [], "root", function.body)
        return function.with_body(SBlockRealize([], True, root))
