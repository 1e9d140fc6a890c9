"""Find the passes that recipes name: TVM's, and those of this package."""

import importlib
import re
from collections.abc import Mapping
from typing import Any, TypedDict, cast

Step = TypedDict(
    "Step", {"pass": str, "call": str, "args": list[Any], "optional": bool, "left_out": str}, total=False
)  # a step of a recipe, or an argument that a call makes
TVM_PASSES = re.compile(r"(relax\.transform|relax\.backend|s_tir\.dlight(\.[cg]pu)?)\.[A-Z]\w*", re.ASCII)
# TVM passes that read any folder, tune, or call what a module names: recipes are untrusted.
NOT_IN_RECIPES = frozenset(
    f"relax.transform.{name}"
    for name in (
        *("AttachExternModules", "MetaScheduleApplyDatabase", "MetaScheduleTuneIRMod", "MetaScheduleTuneTIR"),
        "RunCodegen",
    )
)
# MODULE:NAME of the passes that TVM lacks, and of functions that make arguments of passes.
OWN_PASSES = {
    "mallorn.batch_norms": "graphc.fold.fold_batch_norm:FoldBatchNorm",
    "mallorn.bf16": "graphc.quant.bf16_dot_products:Bf16DotProducts",
    "mallorn.blocked": "graphc.quant.keep_block_quantized_weights:KeepBlockQuantizedWeights",
    "mallorn.calls": "graphc.tasks.wrap_extern_calls:WrapExternCalls",
    "mallorn.concats": "graphc.layout.concat_to_copies:ConcatToCopies",
    "mallorn.constants": "graphc.fold.fold_constant_operators:FoldConstantOperators",
    "mallorn.copies": "graphc.fold.fold_constant_copies:FoldConstantCopies",
    "mallorn.cancelled": "graphc.layout.cancel_transposes:CancelTransposes",
    "mallorn.channel_runs": "graphc.layout.join_rows:CopyChannelRuns",
    "mallorn.cumulative": "graphc.elementwise.vectorize_cumsum:VectorizeCumsum",
    "mallorn.depthwise": "graphc.conv.fuse_pointwise_into_depthwise:FusePointwiseIntoDepthwise",
    "mallorn.find_norms": "graphc.norm.find_group_norms:FindGroupNorms",
    "mallorn.folds": "graphc.tasks.mark_reductions:MarkReductions",
    "mallorn.groups": "graphc.conv.grouped_conv_to_batched:GroupedConvToBatched",
    "mallorn.heads": "graphc.matmul.fuse_transposes_into_batched_matmul:FuseTransposesIntoBatchedMatmul",
    "mallorn.int8": "graphc.quant.int8_dot_products:Int8DotProducts",
    "mallorn.integers": "graphc.quant.compute_in_integers:ComputeInIntegers",
    "mallorn.joined": "graphc.conv.grouped_conv_to_batched:KeepJoinedGroupsApart",
    "mallorn.laid": "graphc.tasks.keep_packed_weights:KeepPackedWeights",
    "mallorn.lanes": "graphc.core.vector_lanes:lanes",
    "mallorn.lines": "graphc.tasks.mark_elementwise_rows:MarkElementwiseRows",
    "mallorn.lookups": "graphc.layout.join_rows:FuseLookups",
    "mallorn.norms": "graphc.norm.group_norm_to_partial_sums:GroupNormToPartialSums",
    "mallorn.passable": "graphc.layout.prepare_convert_layout:PrepareConvertLayout",
    "mallorn.pools": "graphc.conv.move_pool_before_pointwise:MovePoolBeforePointwise",
    "mallorn.reached": "graphc.conv.trim_weights_on_padding:TrimWeightsOnPadding",
    "mallorn.reals": "graphc.quant.fuse_linear_sums:FuseDequantize",
    "mallorn.restore_clip": "graphc.layout.prepare_convert_layout:ClipToMaxMin",
    "mallorn.rows": "graphc.norm.vectorize_softmax_and_layer_norm:VectorizeSoftmaxAndLayerNorm",
    "mallorn.shuffles": "graphc.layout.fold_channel_shuffles:FoldChannelShuffles",
    "mallorn.smooth": "graphc.elementwise.vectorize_smooth_functions:VectorizeSmoothFunctions",
    "mallorn.steps": "graphc.quant.fuse_linear_sums:FuseRequantize",
    "mallorn.taps": "graphc.quant.int8_depthwise_conv:Int8DepthwiseConv",
    "mallorn.transposed": "graphc.conv.split_conv_transpose_by_phase:SplitConvTransposeByPhase",
    "mallorn.transposes": "graphc.layout.tile_transposes:TileTransposes",
    "mallorn.vectors": "graphc.conv.pad_conv_to_vectors:PadConvToVectors",
    "mallorn.views": "graphc.layout.move_elementwise_before_reshape:MoveElementwiseBeforeReshape",
    "mallorn.whole": "graphc.matmul.pad_matmul_to_tiles:PadMatmulToTiles",
    "mallorn.winograd": "graphc.conv.conv3x3_to_winograd:Conv3x3ToWinograd",
    "s_tir.dlight.gpu.Matmul": "graphc.matmul.dlight_matmul:LowerableMatmul",
}
# Passes that run after a pass, as part of the same step of a recipe.
FOLLOWED_BY: Mapping[str, str] = {
    "mallorn.constants": "graphc.fold.fold_constant_operators:FoldRemainingConstants",
    "mallorn.integers": "graphc.quant.quantize_to_arithmetic:QuantizeToArithmetic",
}


def make_passes(step: Step) -> list[Any]:
    """Return the passes of a recipe's step, in order. Raises ValueError for unknown names."""
    return [make_pass(step), *(follower() for follower in following_passes(step["pass"]))]


def following_passes(name: str) -> list[Any]:
    """Return the classes of the passes that always run directly after the named pass."""
    return [_imported(FOLLOWED_BY[name])] if name in FOLLOWED_BY else []


def make_pass(step: Step) -> Any:
    """Construct the pass that a step names. Raises ValueError if the name is unknown."""
    name = step.get("pass") or step["call"]
    args = [
        make_pass(cast(Step, a)) if isinstance(a, dict) and "call" in a else a for a in step.get("args", [])
    ]
    return resolve_pass(name)(*args)


def resolve_pass(name: str) -> Any:
    """Return the class or function that makes a pass. Raises ValueError for unknown names."""
    if name in OWN_PASSES:
        return _imported(OWN_PASSES[name])
    if TVM_PASSES.fullmatch(name) and name not in NOT_IN_RECIPES:
        return _imported("tvm.{0}:{2}".format(*name.rpartition(".")))
    raise ValueError(
        f"{name} is not a graph pass that recipes may name: none of TVM's and none of {', '.join(OWN_PASSES)}"
    )


def _imported(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
