"""Graph recipes: which passes turn a network into tasks, and a tuned network into a library.

Plain data, so that a worker and a manifest can name a recipe without loading TVM. A recipe decides which
tasks exist: change a step and schedules tuned before match nothing. Raise `version` with every change.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from mallorn.core.errors import InvalidRequest
from mallorn.core.names import resolve
from mallorn.core.targets import Target
from mallorn.core.values.graph import RecipeStep, StoredRecipe

if TYPE_CHECKING:
    from graphc.core.pass_runner import Step as PassStep


@dataclass(frozen=True)
class Recipe:
    """The passes before and after MetaScheduleApplyDatabase, which sits between the two."""

    name: str
    version: int
    before: tuple[RecipeStep, ...]
    after: tuple[RecipeStep, ...]


def _step(name: str, *args: JsonValue, optional: bool = False) -> RecipeStep:
    """A pass of TVM or of templates/; an argument `{"call": name, "args": [...]}` is what that returns."""
    return RecipeStep(name=name, args=list(args), optional=optional)


def _relax(*names: str) -> tuple[RecipeStep, ...]:
    return tuple(_step(f"relax.transform.{name}") for name in names)


# The target's own, wherever the recipe runs.
_LANES: Final[JsonValue] = {"call": "mallorn.lanes", "args": []}
_DISPATCH: Final = (_step("relax.backend.DispatchSampling"), _step("relax.backend.DispatchSortScan"))
# What compile_relax and the pipeline "zero" run before they look a task up.
_LEGALIZE: Final = _relax("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR")
# FoldConstant compiles a library for every operator that is left to it.
_FOLD: Final = (_step("mallorn.constants"), *_relax("FoldConstant"))
_SIMPLIFY: Final = (*_FOLD, *_relax("DecomposeOpsForInference", "CanonicalizeBindings"), *_FOLD)

# Convolutions vectorise over channels. Listing max_pool2d fails (NoDesiredLayout) and is not needed: pools
# follow the layout of what they read, and so does a Clip that is an operator again. Optional: the pass gives
# up on some models (a stack of five dimensions will do). The folding that follows re-lays the weights.
CHANNELS_LAST: Final[dict[str, JsonValue]] = {
    "relax.nn.conv1d": ["NWC", "WIO"],
    "relax.nn.conv2d": ["NHWC", "HWIO"],
    "relax.nn.conv1d_transpose": ["NWC", "WIO"],
    "relax.nn.conv2d_transpose": ["NHWC", "HWIO"],
}
_NHWC: Final = (
    _step("mallorn.restore_clip"),
    _step("mallorn.passable"),
    _step("mallorn.reached"),
    _step("mallorn.find_norms", _LANES),
    *_relax("DeadCodeElimination"),
    _step("relax.transform.ConvertLayout", CHANNELS_LAST, optional=True),
    *_FOLD,
    *_relax("CanonicalizeBindings"),
    _step("mallorn.transposed", _LANES),
    _step("mallorn.views"),
    *_relax("DeadCodeElimination"),
)

_DLIGHT: Final = RecipeStep(
    name="s_tir.dlight.ApplyDefaultSchedule",
    args=[
        {"call": f"s_tir.dlight.gpu.{rule}", "args": []}
        for rule in ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Fallback")
    ],
    optional=False,
)


PLAIN: Final = Recipe("plain", 1, before=_DISPATCH + _LEGALIZE, after=())
PLAIN_GPU: Final = Recipe("plain-gpu", 1, before=PLAIN.before, after=(_DLIGHT,))


def _tuned(name: str, version: int, *choices: RecipeStep) -> Recipe:
    """What is known to be fast on CPUs, with these choices about operators."""
    return Recipe(
        name,
        version,
        before=(
            # Before weights are folded into real numbers.
            _step("mallorn.integers"),
            _step("mallorn.blocked"),
            *_relax("DeadCodeElimination"),
            *_SIMPLIFY,
            *_NHWC,
            _step("mallorn.int8"),
            _step("mallorn.taps", _LANES),
            _step("mallorn.steps"),
            *_relax("DeadCodeElimination"),
            _step("mallorn.reals"),
            *_relax("DeadCodeElimination"),
            *choices,
            _step("mallorn.heads", _LANES),
            _step("mallorn.transposes"),
            _step("mallorn.norms", _LANES),
            _step("mallorn.rows", _LANES),
            _step("mallorn.smooth"),
            _step("mallorn.cumulative", _LANES),
            # Before legalisation: swaps erf, exp, tanh and other softmaxes for forms that LLVM vectorises.
            *_relax("FastMathTransform"),
            *_DISPATCH,
            *_LEGALIZE,
            # Reshapes become views, and are no tasks.
            *_relax("RewriteDataflowReshape", "DeadCodeElimination", "AttachAttrLayoutFreeBuffers"),
            _step("mallorn.laid"),
            _step("mallorn.calls"),
            _step("mallorn.folds", _LANES),
            _step("mallorn.lines", _LANES),
        ),
        # Weights are constants here, so folding re-lays them at compile time: LiftTransformParams, which
        # makes a second function that the caller has to run, is not needed.
        after=_relax("SplitLayoutRewritePreproc", "FoldConstant"),
    )


# The pass that computes products in bfloat16.
ROUNDS: Final = "mallorn.bf16"
_DEPTHWISE: Final = (_step("mallorn.depthwise", _LANES), *_relax("DeadCodeElimination"))
_WHOLE: Final = (
    _step("mallorn.groups", _LANES),
    _step("mallorn.views"),
    *_relax("DeadCodeElimination"),
    _step("mallorn.joined"),
    _step("mallorn.vectors", _LANES),
    _step("mallorn.whole", _LANES),
)
# What several products read is rounded once.
_ROUND: Final = (_step(ROUNDS), *_relax("EliminateCommonSubexpr"))

TUNED: Final = _tuned("tuned", 11, _step("mallorn.winograd"), *_DEPTHWISE, *_WHOLE)
DIRECT: Final = _tuned("direct", 10, *_DEPTHWISE, *_WHOLE)
BF16: Final = _tuned("bf16", 7, _step("mallorn.winograd", "bfloat16"), *_ROUND)
DIRECT_BF16: Final = _tuned("direct-bf16", 6, *_ROUND)
# CUDA schedules tile NCHW convolutions and re-lay nothing; fast forms of erf and exp exist in hardware.
TUNED_GPU: Final = Recipe("tuned-gpu", 1, before=(*_SIMPLIFY, *_DISPATCH, *_LEGALIZE), after=(_DLIGHT,))

_IN_BF16: Final = {TUNED.name: BF16, DIRECT.name: DIRECT_BF16}
_ON_GPU: Final = {TUNED.name: TUNED_GPU, DIRECT.name: TUNED_GPU, PLAIN.name: PLAIN_GPU}


def recipe_for(name: str, target: Target, precision: str = "float32") -> Recipe:
    """The recipe registered under a name, in the form that suits the target's kind and the precision.

    Raises InvalidRequest where there is no such form.
    """
    recipe: Recipe = resolve("recipe", name)
    if precision == "bf16":
        return _in_bf16(recipe, target)
    return recipe if target.is_cpu else _ON_GPU.get(recipe.name, recipe)


def _in_bf16(recipe: Recipe, target: Target) -> Recipe:
    if not target.is_cpu:
        raise InvalidRequest("bf16 is for CPUs", hint="--precision float32")
    if recipe.name not in _IN_BF16:
        hint = "--recipe tuned --precision bf16"
        raise InvalidRequest(f"the {recipe.name} recipe computes in float32", hint=hint)
    return _IN_BF16[recipe.name]


def precision_of(recipe: StoredRecipe) -> str:
    """The precision that a model computes in after a recipe, as the job's option names it."""
    return "bf16" if any(step.name == ROUNDS for step in recipe.before) else "float32"


def stored_recipe(recipe: Recipe) -> StoredRecipe:
    """The recipe as stored with a job and in a manifest."""
    return StoredRecipe(
        name=recipe.name,
        version=recipe.version,
        before=list(recipe.before),
        after=list(recipe.after),
    )


def recipe_of(stored: StoredRecipe) -> Recipe:
    """What was stored, as passes to run; raises InvalidRequest where it is none."""
    if not stored.name or stored.version < 1:
        raise InvalidRequest(f"not a graph recipe: {stored.stored()}")
    return Recipe(stored.name, stored.version, tuple(stored.before), tuple(stored.after))


def step_json(step: RecipeStep) -> "PassStep":
    """A step as the exported script reads it."""
    return {"pass": step.name, "args": step.args, "optional": step.optional}
