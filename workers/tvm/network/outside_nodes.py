"""Divide an ONNX graph whose import fails: the part that is compiled, and nodes outside of it."""

from collections import Counter
from typing import Any, Final

from onnx import ModelProto

from mallorn.core.errors import InvalidModel
from mallorn.core.values.graph_report import OutsideNodes, Region
from mallorn.graphc.export import compile_network as stock
from mallorn.graphc.onnx import inline_functions
from mallorn.graphc.onnx.fold_shapes import fold_with_types
from mallorn.graphc.onnx.partition_graph import Partition, cut, partition, work_of, write_region
from mallorn.workers.interfaces.model_compiler import Shapes
from mallorn.workers.tvm.network.check_onnx_model import describe_tvm_error, first_line, read_model
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target

LEAST_WORK: Final = 1e5  # operations of a region that is worth a call


def divide(model: ModelProto, shapes: Shapes, target: Any) -> Partition:
    """Divide a graph with these input shapes into regions and the nodes that TVM cannot
    import, after what follows from constants and shapes was computed."""
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

    return partition(folded, types, refusal)


def find_region(model_path: str, target: str, input_shapes: Shapes, region_path: str | None) -> Region | None:
    parts = divide(read_model(model_path), input_shapes, as_tvm_target(target))
    region = max(parts.regions, key=work_of, default=None)
    if region is None or not parts.outside or work_of(region) < LEAST_WORK:
        return None
    if region_path is not None:
        write_region(region, region_path)
    kinds = Counter((each.node.op_type, each.reason) for each in parts.outside)
    return Region(
        inputs=[value.name for value in region.graph.input],
        outputs=[value.name for value in region.graph.output],
        nodes=len(region.graph.node),
        outside=[
            OutsideNodes(operator=operator, reason=reason, count=count)
            for (operator, reason), count in kinds.most_common()
        ],
        rest=sum(len(each.graph.node) for each in parts.regions if each is not region),
    )


def cut_region(model_path: str, input_shapes: Shapes, region: Region, region_path: str) -> None:
    try:
        part = cut(read_model(model_path), input_shapes, region.inputs, region.outputs)
    except ValueError as error:
        raise InvalidModel(
            f"this is not the model that was tuned: {error}", hint="give the file that was tuned"
        ) from None
    write_region(part, region_path)
