"""Recipes: named lists of graph passes, grouped in phases with a purpose. Imports no TVM.

The passes determine which tensor functions are tuned (tasks). Schedules are stored per
task, so if a pass changes, stored schedules may match no task any more.
"""

from dataclasses import dataclass
from inspect import getdoc
from typing import Any

from mallorn.graphc.core.pass_registry import OWN_PASSES, Step, following_passes, resolve_pass


@dataclass(frozen=True)
class PassEntry:
    """A pass of this package, as `mallorn passes` and the reference page show it."""

    name: str
    purpose: str
    phases: tuple[str, ...]
    after: tuple[str, ...]  # passes that must run earlier


@dataclass(frozen=True)
class Phase:
    """Consecutive steps of a recipe with one purpose, which a sentence states for users."""

    name: str
    purpose: str
    steps: tuple[Step, ...]


# Computed from the target whenever the recipe runs.
LANES = {"call": "vector_lanes", "args": []}


def _step(name: str, *args: Any, optional: bool = False) -> Step:
    return {"pass": name, "args": [*args], "optional": optional}


def _relax_steps(*names: str) -> tuple[Step, ...]:
    return tuple(_step(f"relax.transform.{name}") for name in names)


def _own_pass_steps(*names: str) -> tuple[Step, ...]:
    return tuple(_step(name) for name in names)


def _lane_pass_steps(*names: str) -> tuple[Step, ...]:
    return tuple(_step(name, LANES) for name in names)


_CLEAN = _relax_steps("DeadCodeElimination")
_DISPATCH = (_step("relax.backend.DispatchSampling"), _step("relax.backend.DispatchSortScan"))
# The passes that compile_relax and the pipeline "zero" run before they look up tasks.
_LEGALIZE = _relax_steps("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR")
_FOLD = _own_pass_steps("fold_constant_operators")
_SIMPLIFY = (*_FOLD, *_relax_steps("DecomposeOpsForInference", "CanonicalizeBindings"), *_FOLD)

# Listing max_pool2d fails (NoDesiredLayout) and is unnecessary: pools follow the layout of
# their inputs, and so does a Clip once it is an operator again.
CHANNELS_LAST = {
    "relax.nn.conv1d": ["NWC", "WIO"],
    "relax.nn.conv2d": ["NHWC", "HWIO"],
    "relax.nn.conv1d_transpose": ["NWC", "WIO"],
    "relax.nn.conv2d_transpose": ["NHWC", "HWIO"],
}
_DLIGHT = _step(
    "s_tir.dlight.ApplyDefaultSchedule",
    *(
        {"call": f"s_tir.dlight.gpu.{rule}", "args": []}
        for rule in ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Fallback")
    ),
)

QUANTIZED = Phase(
    "quantized",
    "Keeps sums of bytes and weights of few bits as such, before folding makes real numbers of them.",
    (*_own_pass_steps("compute_in_integers", "keep_block_quantized_weights"), *_CLEAN),
)
FOLD = Phase("fold", "Computes what depends on constants alone.", _SIMPLIFY)
LAYOUT = Phase(
    "layout",
    "Puts channels last, because convolutions vectorise over them; folding re-lays their weights.",
    (
        *_own_pass_steps(
            "clip_to_max_min", "prepare_convert_layout", "trim_weights_on_padding", "fold_channel_shuffles"
        ),
        *_lane_pass_steps("find_group_norms"),
        *_CLEAN,
        # Optional: the pass fails on some models, such as those with a 5-dimensional stack.
        _step("relax.transform.ConvertLayout", CHANNELS_LAST, optional=True),
        *_FOLD,
        *_relax_steps("CanonicalizeBindings"),
        *_lane_pass_steps("split_conv_transpose_by_phase"),
        *_own_pass_steps("move_elementwise_before_reshape", "cancel_transposes"),
        *_CLEAN,
    ),
)
INTEGER_PRODUCTS = Phase(
    "integer products",
    "Sums products of bytes by the processor's instructions, and fuses the rounding around them.",
    (
        *_own_pass_steps("int8_dot_products"),
        *_lane_pass_steps("int8_depthwise_conv"),
        *_own_pass_steps("fuse_requantize"),
        *_CLEAN,
        *_own_pass_steps("fuse_dequantize"),
        *_CLEAN,
    ),
)
MOVES = Phase(
    "moves",
    "Folds factors and summands of channels into weights, and pools before it multiplies.",
    (*_own_pass_steps("fold_batch_norm", "move_pool_before_pointwise"), *_CLEAN),
)
WINOGRAD = Phase(
    "winograd", "Multiplies less for 3 x 3 kernels, where that pays.", _own_pass_steps("conv3x3_to_winograd")
)
FLOAT_PRODUCTS = Phase(
    "products",
    "Gives convolutions and products sizes that fill vectors and tiles of registers.",
    (
        *_lane_pass_steps("fuse_pointwise_into_depthwise"),
        *_CLEAN,
        *_lane_pass_steps("grouped_conv_to_batched"),
        *_own_pass_steps("move_elementwise_before_reshape"),
        *_CLEAN,
        *_own_pass_steps("keep_joined_groups_apart"),
        *_lane_pass_steps("pad_conv_to_vectors", "pad_matmul_to_tiles"),
    ),
)
BF16_PRODUCTS = Phase(
    "bf16 products",
    "Rounds the factors of products to bfloat16, and what several of them read once.",
    (
        _step("conv3x3_to_winograd", "bfloat16"),
        *_own_pass_steps("bf16_dot_products"),
        *_relax_steps("EliminateCommonSubexpr"),
    ),
)
DIRECT_BF16_PRODUCTS = Phase(BF16_PRODUCTS.name, BF16_PRODUCTS.purpose, BF16_PRODUCTS.steps[1:])
FP16_PRODUCTS = Phase(
    "fp16 products",
    "Rounds the factors of products to float16, and what several of them read once.",
    (*_own_pass_steps("fp16_dot_products"), *_relax_steps("EliminateCommonSubexpr")),
)
COPIES = Phase(
    "copies",
    "Joins tensors part by part: slices, rows of tables, and with what follows computed on the way.",
    (*_lane_pass_steps("copy_channel_runs", "fuse_lookups", "concat_to_copies"), *_CLEAN),
)
ATTENTION_AND_NORMS = Phase(
    "attention and norms",
    "Fuses transposes into products, and vectorises norms, softmax and smooth functions.",
    (
        *_lane_pass_steps("fuse_transposes_into_batched_matmul"),
        *_own_pass_steps("tile_transposes"),
        *_lane_pass_steps("group_norm_to_partial_sums", "vectorize_softmax_and_layer_norm"),
        *_own_pass_steps("vectorize_smooth_functions"),
        *_lane_pass_steps("vectorize_cumsum"),
        # Before legalisation: vectorisable forms of erf, exp, tanh and other softmaxes.
        *_relax_steps("FastMathTransform"),
    ),
)
LOWER = Phase(
    "lower",
    "Makes tensor functions of all operators, fuses neighbours, and makes views of reshapes.",
    (
        *_own_pass_steps("sort_by_digits"),
        *_DISPATCH,
        *_LEGALIZE,
        *_relax_steps("RewriteDataflowReshape", "DeadCodeElimination", "AttachAttrLayoutFreeBuffers"),
    ),
)
MARK_TASKS = Phase(
    "mark tasks",
    "Names the schedule rules of blocks that TVM's rules leave without vectors.",
    (
        *_own_pass_steps("keep_packed_weights", "wrap_extern_calls"),
        *_lane_pass_steps("mark_reductions", "mark_elementwise_rows"),
    ),
)
WEIGHTS = Phase(
    "weights",
    # Weights are constants; LiftTransformParams would add a function for callers to run.
    "Re-lays weights as the schedules read them, at compile time.",
    (
        *_relax_steps("SplitLayoutRewritePreproc"),
        *_own_pass_steps("fold_constant_copies"),
        *_relax_steps("FoldConstant"),
    ),
)
PLAIN_GPU_LOWER = Phase(
    "plain lowering", "Makes tensor functions of all operators as TVM does.", _DISPATCH + _LEGALIZE
)
PLAIN_LOWER = Phase(
    PLAIN_GPU_LOWER.name,
    PLAIN_GPU_LOWER.purpose,
    _own_pass_steps("sort_by_digits") + PLAIN_GPU_LOWER.steps,
)
# NCHW for what TVM cannot legalise channels-last: transposed convolutions.
_GPU_CHANNELS_LAST = {name: CHANNELS_LAST[name] for name in ("relax.nn.conv1d", "relax.nn.conv2d")}
_GPU_LAYOUT_STEPS = {
    "relax.transform.ConvertLayout": _step(
        "relax.transform.ConvertLayout", _GPU_CHANNELS_LAST, optional=True
    ),
    "move_elementwise_before_reshape": _step("move_transposes_after_elementwise"),
    "cancel_transposes": _step("cancel_transposes", True),
}
GPU_LAYOUT = Phase(
    LAYOUT.name,
    "Puts channels last, because tensor cores sum over them; folding re-lays their weights.",
    (
        *(
            _GPU_LAYOUT_STEPS.get(step["pass"], step)
            for step in LAYOUT.steps
            if step not in _lane_pass_steps("split_conv_transpose_by_phase")
        ),
        *_relax_steps("CanonicalizeBindings"),
    ),
)
GPU_ATTENTION = Phase(
    "attention",
    "Fuses transposes into products of computed factors, which tensor cores read in any order.",
    (_step("fuse_transposes_into_batched_matmul", 0, True), *_CLEAN),
)
GPU_LOWER = Phase(
    LOWER.name,
    LOWER.purpose,
    (*_DISPATCH, *_LEGALIZE, *_relax_steps("RewriteDataflowReshape", "DeadCodeElimination")),
)
TF32_PRODUCTS = Phase(
    "TF32 products", "Rounds the factors of matrix products to TF32.", _own_pass_steps("tf32_products")
)
GPU_SCHEDULES = Phase("default schedules", "Schedules by rules what no record schedules.", (_DLIGHT,))


def _cpu_phases(*products: Phase) -> tuple[Phase, ...]:
    first = (QUANTIZED, FOLD, LAYOUT, INTEGER_PRODUCTS, MOVES)
    return (*first, *products, COPIES, ATTENTION_AND_NORMS, LOWER, MARK_TASKS)


def _gpu_phases(dtype: str) -> tuple[Phase, ...]:
    """Return the phases of networks on GPUs whose products multiply numbers of type `dtype`."""
    step = _step("decode_weights_in_products", "float32" if dtype == "tfloat32" else dtype)
    few_bits = Phase(
        "weights of few bits", "Keeps weights of few bits, which products decode.", (step, *_CLEAN)
    )
    if dtype == "float32":
        return few_bits, FOLD, MOVES, GPU_ATTENTION, GPU_LOWER
    if dtype == "tfloat32":
        return few_bits, FOLD, GPU_LAYOUT, MOVES, GPU_ATTENTION, GPU_LOWER, TF32_PRODUCTS
    products = Phase(
        "16-bit products",
        "Rounds the factors of products to 16 bits; computes attention over few keys in one kernel.",
        (
            _step("half_products", dtype),
            *_own_pass_steps("round_before_moves", "fuse_short_attention"),
            *_CLEAN,
        ),
    )
    return few_bits, FOLD, GPU_LAYOUT, MOVES, products, GPU_ATTENTION, GPU_LOWER


# By recipe name: the phases before schedules are applied. In float32, the
# schedules of GPUs tile NCHW convolutions; none re-lays weights, and GPUs have fast erf and exp.
BEFORE_SCHEDULES: dict[str, tuple[Phase, ...]] = {
    "tuned": _cpu_phases(WINOGRAD, FLOAT_PRODUCTS),
    "direct": _cpu_phases(FLOAT_PRODUCTS),
    "bf16": _cpu_phases(BF16_PRODUCTS),
    "direct-bf16": _cpu_phases(DIRECT_BF16_PRODUCTS),
    "fp16": _cpu_phases(FP16_PRODUCTS),
    "plain": (PLAIN_LOWER,),
    "plain-gpu": (PLAIN_GPU_LOWER,),
    "tuned-gpu": _gpu_phases("float32"),
    "fp16-gpu": _gpu_phases("float16"),
    "bf16-gpu": _gpu_phases("bfloat16"),
    "tf32-gpu": _gpu_phases("tfloat32"),
}
# By recipe name: the phases after schedules are applied, if any.
AFTER_SCHEDULES: dict[str, tuple[Phase, ...]] = {
    **dict.fromkeys(("plain-gpu", "tuned-gpu", "fp16-gpu", "bf16-gpu", "tf32-gpu"), (GPU_SCHEDULES,)),
    **dict.fromkeys(("tuned", "direct", "bf16", "direct-bf16", "fp16"), (WEIGHTS,)),
}


def pass_table() -> list[PassEntry]:
    """Return this package's passes in the order in which recipes first run them."""
    phases_by_pass: dict[str, dict[str, None]] = {}  # ordered sets
    for phase in (phase for phases in BEFORE_SCHEDULES.values() for phase in phases):
        for step in phase.steps:
            if step["pass"] in OWN_PASSES:
                phases_by_pass.setdefault(step["pass"], {})[phase.name] = None
    return [
        PassEntry(
            name=pass_class.name,
            purpose=(getdoc(pass_class) or "").partition("\n")[0],
            phases=tuple(phases),
            after=pass_class.after,
        )
        for name, phases in phases_by_pass.items()
        for pass_class in (resolve_pass(name), *following_passes(name))
    ]
