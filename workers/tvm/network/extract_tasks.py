"""Extract a model's tuning tasks as plain data, and count the operations of programs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import SBlock
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.tirx import Evaluate, Let, Select

from mallorn.core.errors import InvalidModel
from mallorn.core.values.graph_report import GraphReport, StoredRecipe, TensorSpec
from mallorn.graphc.core.graph_rewriting import WORK, collect_nodes
from mallorn.graphc.export.compile_network import list_tuning_tasks
from mallorn.graphc.quant.tf32_products import before_rounding
from mallorn.workers.interfaces.model_compiler import Extraction, ModelTask, Ranges, Shapes
from mallorn.workers.interfaces.tensor_arguments import FREE_RANGE
from mallorn.workers.tvm.network.import_onnx_to_relax import (
    ImportedModel,
    load_network,
    name_unsized_node_in_errors,
)
from mallorn.workers.tvm.network.remaining_copies import count_remaining_copies
from mallorn.workers.tvm.network.run_recipe_passes import (
    as_tvm_target,
    count_operators,
    run_passes_skipping_failures,
)
from mallorn.workers.tvm.programs.program_blocks import arguments, blocks_of, find_main_block, operator_of
from mallorn.workers.tvm.programs.workload_key import rename_blocks_canonically, structure_key, workload_key


def count_operations(mod: Any) -> float:
    """Count a program's operations, by annotation in blocks that TVM cannot count."""
    blocks = collect_nodes(mod["main"], SBlock)
    annotated = sum(int(block.annotations[WORK]) for block in blocks if WORK in block.annotations)

    def without_let(node: Any) -> Any:
        # As a sum: TVM would not count the value of a Let, which is computed once.
        return tvm.tirx.Cast(str(node.ty.dtype), node.value) + node.body

    def without_annotated(block: Any) -> Any:
        if WORK not in block.annotations:
            return block
        empty_body = Evaluate(tvm.tirx.const(0))
        return SBlock(block.iter_vars, block.reads, block.writes, block.name_hint, empty_body)

    rules = [(Let, without_let), (SBlock, without_annotated), (Select, before_rounding)]
    functions = {var: tvm_ffi.structural_map(function, rules) for var, function in mod.functions.items()}
    return float(annotated + estimate_tir_flops(tvm.IRModule(functions, attrs=mod.attrs)))


def extract(model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes) -> Extraction:
    network = load_network(model_path, input_shapes, as_tvm_target(target))
    with name_unsized_node_in_errors(model_path, input_shapes):
        return extract_network_tasks(network, target, recipe)


def extract_network_tasks(network: ImportedModel, target: str, recipe: StoredRecipe) -> Extraction:
    """Do the same as `extract` for a model that is already imported."""
    tvm_target = as_tvm_target(target)
    recipe, mod, steps = run_passes_skipping_failures(network.mod, recipe, tvm_target)
    tasks = describe_tasks(mod, tvm_target)
    if not tasks:
        raise InvalidModel("the model has nothing to tune: every result is a constant or an input")
    graph = GraphReport(
        inputs=network.inputs,
        outputs=network.outputs,
        input_ranges=input_ranges(network.inputs, tasks),
        onnx_operators=network.operators,
        operators_before=count_operators(network.mod),
        operators_after=count_operators(mod),
        copies=count_remaining_copies(mod),
        steps=steps,
        recipe=recipe,
        tvm_version=tvm.__version__,
    )
    return Extraction(graph, tuple(tasks))


def describe_tasks(mod: Any, target: Any) -> list[ModelTask]:
    """Describe a module's tuning tasks, each program once."""
    return merge(
        describe_task(rename_blocks_canonically(task.dispatched[0]), str(task.task_name), int(task.weight))
        for task in list_tuning_tasks(mod, target)
    )


def describe_task(mod: Any, name: str, weight: int) -> ModelTask:
    """Describe a program as a tuning task, in plain data and with canonical block names."""
    blocks = blocks_of(mod)
    return ModelTask(
        name=name,
        weight=weight,
        key=workload_key(mod),
        op=operator_of(blocks),
        structure=structure_key(mod),
        flops=count_operations(mod),
        tir=tvm.ir.save_json(mod),
        args=arguments(mod),
        extents=tuple(find_main_block(blocks).extents),
    )


def merge(tasks: Iterable[ModelTask]) -> list[ModelTask]:
    """Merge tasks with equal keys, and add up their weights (numbers of calls)."""
    task_by_key: dict[str, ModelTask] = {}
    for task in tasks:
        previous = task_by_key.get(task.key)
        weight = task.weight if previous is None else previous.weight + task.weight
        task_by_key[task.key] = replace(previous or task, weight=weight)
    return list(task_by_key.values())


def input_ranges(inputs: Sequence[TensorSpec], tasks: Sequence[ModelTask]) -> Ranges:
    """Return the values that each integer input of a model may have so that all lookups
    stay in bounds. Data flow is not traced: the smallest bound applies to all inputs."""
    lookups = [r for task in tasks for r in task.args.ranges.values() if r != FREE_RANGE]
    bound = min(lookups, key=lambda r: r[1], default=FREE_RANGE)
    integers = (i.name for i in inputs if i.dtype.startswith(("int", "uint", "bool")))
    return {name: list(bound) for name in integers}
