"""Find the passes that recipes name: TVM's, and those of this package."""

import importlib
import re
from collections.abc import Mapping
from typing import Any, TypedDict, cast

from mallorn.graphc.core.graph_kind import graph_kinds

Step = TypedDict(
    "Step", {"pass": str, "call": str, "args": list[Any], "optional": bool, "left_out": str}, total=False
)  # a step of a recipe as JSON; or the argument {"call": name, "args": [...]}, which stands for its result
TVM_PASSES = re.compile(r"(relax\.transform|relax\.backend|s_tir\.dlight(\.[cg]pu)?)\.[A-Z]\w*", re.ASCII)
# TVM passes that read any folder, tune, or call what a module names: recipes are untrusted.
NOT_IN_RECIPES = frozenset(
    f"relax.transform.{name}"
    for name in (
        *("AttachExternModules", "MetaScheduleApplyDatabase", "MetaScheduleTuneIRMod", "MetaScheduleTuneTIR"),
        "RunCodegen",
    )
)
# Folder and module of each of our passes, by the name that recipes, manifests, reports and users
# give it. Its class has the same name in CamelCase: WrapExternCalls is "wrap_extern_calls".
_FILES = {
    "bf16_dot_products": "quant.dot_products",
    "fp16_dot_products": "quant.dot_products",
    "cancel_transposes": "layout.transposes",
    "clip_to_max_min": "layout.prepare_convert_layout",
    "compute_in_integers": "quant.compute_in_integers",
    "concat_to_copies": "layout.concat_to_copies",
    "conv3x3_to_winograd": "conv.conv3x3_to_winograd",
    "copy_channel_runs": "layout.join_rows",
    "decode_weights_in_products": "quant.keep_block_quantized_weights",
    "find_group_norms": "norm.group_norms",
    "fold_batch_norm": "fold.fold_batch_norm",
    "fold_channel_shuffles": "layout.fold_channel_shuffles",
    "fold_constant_copies": "fold.constants",
    "fold_constant_operators": "fold.constants",
    "fold_remaining_constants": "fold.constants",
    "fuse_dequantize": "quant.fuse_linear_sums",
    "fuse_lookups": "layout.join_rows",
    "fuse_pointwise_into_depthwise": "conv.fuse_pointwise_into_depthwise",
    "fuse_requantize": "quant.fuse_linear_sums",
    "fuse_transposes_into_batched_matmul": "matmul.fuse_transposes_into_batched_matmul",
    "group_norm_to_partial_sums": "norm.group_norms",
    "grouped_conv_to_batched": "conv.grouped_conv_to_batched",
    "half_products": "quant.half_products",
    "int8_depthwise_conv": "quant.int8_depthwise_conv",
    "int8_dot_products": "quant.dot_products",
    "keep_block_quantized_weights": "quant.keep_block_quantized_weights",
    "keep_joined_groups_apart": "conv.grouped_conv_to_batched",
    "keep_packed_weights": "tasks.mark_tasks",
    "mark_elementwise_rows": "tasks.mark_tasks",
    "mark_reductions": "tasks.mark_tasks",
    "move_elementwise_before_reshape": "layout.move_elementwise_before_reshape",
    "move_pool_before_pointwise": "conv.move_pool_before_pointwise",
    "move_transposes_after_elementwise": "layout.transposes",
    "pad_conv_to_vectors": "conv.pad_conv_to_vectors",
    "pad_matmul_to_tiles": "matmul.pad_matmul_to_tiles",
    "prepare_convert_layout": "layout.prepare_convert_layout",
    "quantize_to_arithmetic": "quant.quantize_to_arithmetic",
    "round_before_moves": "quant.half_products",
    "sort_by_digits": "elementwise.sort_by_digits",
    "split_conv_transpose_by_phase": "conv.split_conv_transpose_by_phase",
    "tf32_products": "quant.tf32_products",
    "tile_transposes": "layout.transposes",
    "trim_weights_on_padding": "conv.trim_weights_on_padding",
    "vectorize_cumsum": "elementwise.vectorize_cumsum",
    "vectorize_smooth_functions": "elementwise.vectorize_smooth_functions",
    "vectorize_softmax_and_layer_norm": "norm.vectorize_softmax_and_layer_norm",
    "wrap_extern_calls": "tasks.mark_tasks",
}
# Module of each pass that TVM lacks; kinds of hardware have passes of their own.
OWN_PASSES = {name: f"mallorn.graphc.{file}" for name, file in _FILES.items()}
for _kind in graph_kinds().values():
    OWN_PASSES |= _kind.passes
# MODULE:NAME of what makes arguments of passes, and of a rule of TVM that another replaces.
ARGUMENTS = {
    "vector_lanes": "mallorn.graphc.core.vector_lanes:lanes",
    **{name: rule for kind in graph_kinds().values() for name, rule in kind.replaced_rules.items()},
}
# Passes that run after a pass, as part of the same step of a recipe.
FOLLOWED_BY: Mapping[str, str] = {
    "fold_constant_operators": "fold_remaining_constants",
    "compute_in_integers": "quantize_to_arithmetic",
}


def make_passes(step: Step) -> list[Any]:
    """Return the passes of a recipe's step, in order. Raises ValueError for unknown names."""
    return [make_pass(step), *(follower() for follower in following_passes(step["pass"]))]


def following_passes(name: str) -> list[Any]:
    """Return the classes of the passes that always run directly after the named pass."""
    follower = FOLLOWED_BY.get(name)
    return [resolve_pass(follower)] if follower else []


def make_pass(step: Step) -> Any:
    """Construct the pass that a step names. Raises ValueError if the name is unknown."""
    name = step.get("pass") or step["call"]
    args = [
        make_pass(cast(Step, a)) if isinstance(a, dict) and "call" in a else a for a in step.get("args", [])
    ]
    return resolve_pass(name)(*args)


def resolve_pass(name: str) -> Any:
    """Return the class or function that makes a pass. Raises ValueError for unknown names."""
    if module := OWN_PASSES.get(name):
        class_name = "".join(word.capitalize() for word in name.split("_"))
        return _import_attribute(f"{module}:{class_name}")
    if name in ARGUMENTS:
        return _import_attribute(ARGUMENTS[name])
    if TVM_PASSES.fullmatch(name) and name not in NOT_IN_RECIPES:
        return _import_attribute("tvm.{0}:{2}".format(*name.rpartition(".")))
    raise ValueError(f"{name} is not a graph pass of TVM's or of these: {', '.join(OWN_PASSES)}")


def _import_attribute(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
