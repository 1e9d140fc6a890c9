"""Find the nodes of an ONNX graph that cannot be compiled, when its import fails."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from onnx import ModelProto

from mallorn.graphc.export import compile_network as stock
from mallorn.graphc.onnx import inline_functions
from mallorn.graphc.onnx.fold_shapes import fold_with_types
from mallorn.graphc.onnx.partition_graph import OutsideNode, partition
from mallorn.workers.interfaces.model_compiler import Shapes
from mallorn.workers.tvm.network.check_onnx_model import describe_tvm_error, first_line

MOST_OPERATORS: Final = 6  # named in a message


def find_outside_nodes(model: ModelProto, shapes: Shapes, target: Any) -> tuple[list[OutsideNode], int]:
    """Return the nodes that TVM cannot import one by one with these input shapes, and the number of
    all nodes, both after what follows from constants and shapes was computed."""
    folded, types = fold_with_types(inline_functions.inline(model), shapes)

    def refusal(alone: ModelProto) -> str | None:
        try:
            simple = stock.simplify_onnx_model(alone, {})
            unknown = {node.op_type for node in simple.graph.node} - stock.patch_importer_and_list_operators()
            if unknown:
                return f"TVM has no operator {', '.join(sorted(unknown))}"
            stock.convert_to_relax(simple, {}, target)
        except Exception as error:  # whatever a converter raises, it cannot import the node
            return describe_tvm_error(error) if first_line(error) else type(error).__name__
        return None

    return list(partition(folded, types, refusal).outside), len(folded.graph.node)


def describe_outside_nodes(outside: Sequence[OutsideNode], count: int) -> str:
    """Return a sentence about all nodes that cannot be imported, by operator; empty for none."""
    if not outside:
        return ""
    operators = Counter(each.node.op_type for each in outside).most_common()
    names = [f"{times} {name}" for name, times in operators[:MOST_OPERATORS]]
    others = ["others"] if len(operators) > MOST_OPERATORS else []
    return f"{len(outside)} of {count} nodes cannot be imported: {', '.join([*names, *others])}"
