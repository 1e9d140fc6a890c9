"""Run a recipe's graph passes one by one, and report what each of them did."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relax

from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import parse_target
from mallorn.core.values.graph_report import GraphStep, StoredRecipe
from mallorn.graphc.core.graph_pass import NOT_THE_PASS, Unsupported
from mallorn.graphc.core.pass_registry import OWN_PASSES, Step, resolve_pass
from mallorn.graphc.core.pass_runner import run_passes
from mallorn.workers.tvm.network import graph_recipes
from mallorn.workers.tvm.network.check_onnx_model import describe_tvm_error
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target

TargetLike = str | dict[str, object]


class PassFailed(InvalidRequest):
    """TVM cannot run a graph pass on this model."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"cannot run the graph pass {name}: {reason}")


def as_tvm_target(target: TargetLike) -> Any:
    """Convert a target, in any form that `parse_target` reads, to a TVM target."""
    return parse_tvm_target(parse_target(target).text)


def run_steps(mod: Any, steps: Sequence[Step], target: Any) -> tuple[Any, list[GraphStep]]:
    """Run graph passes on a module. Return the resulting module, and for each pass the
    numbers of functions and calls before and after it."""
    report: list[GraphStep] = []
    functions, ops = _count_functions_and_calls(mod)
    for step in steps:
        with name_pass_in_errors(step["pass"]):
            mod, reports = run_passes(mod, [step], target)
        errors = sum((pass_report.errors for pass_report in reports), Counter[str]())
        skip_reason = reports[0].skipped
        remarks = {"skip_reason": describe_tvm_error(RuntimeError(skip_reason))} if skip_reason else {}
        if errors:
            words = "; ".join(describe_tvm_error(RuntimeError(error)) for error in errors)
            remarks["error"] = f"it left {errors.total()} calls, because it raised {words}"
        functions_before, ops_before = functions, ops
        functions, ops = _count_functions_and_calls(mod)
        report.append(
            GraphStep(
                name=step["pass"],
                functions_before=functions_before,
                ops_before=ops_before,
                functions_after=functions,
                ops_after=ops,
                **remarks,
            )
        )
    return mod, report


def run_passes_skipping_failures(
    mod: Any, recipe: StoredRecipe, target: Any
) -> tuple[StoredRecipe, Any, list[GraphStep]]:
    """Run a recipe's passes that precede tuning, and leave out passes that fail.

    A pass of ours that raises is left out. If a pass of TVM raises, another pass may be the
    cause, so passes are left out until it runs. Returns the recipe that was used, the
    module and a report. Raises PassFailed if leaving out passes does not help.
    """
    try:
        return recipe, *run_steps(mod, graph_recipes.recipe_steps(recipe)["before"], target)
    except PassFailed as error:
        failed = error
    if failed.name in OWN_PASSES:
        names = [failed.name, *getattr(resolve_pass(failed.name), "needed_by", ())]
        recipe = graph_recipes.with_skipped_passes(recipe, dict.fromkeys(names, failed.message))
        return run_passes_skipping_failures(mod, recipe, target)

    def runs_without(names: Sequence[str]) -> bool:
        try:
            reduced_recipe = graph_recipes.with_skipped_passes(recipe, dict.fromkeys(names, failed.message))
            run_steps(mod, graph_recipes.recipe_steps(reduced_recipe)["before"], target)
        except PassFailed:
            return False
        return True

    culprits = graph_recipes.faulty_parts(graph_recipes.skippable_passes(recipe), runs_without)
    if culprits is None:
        raise failed
    recipe = graph_recipes.with_skipped_passes(recipe, dict.fromkeys(culprits, failed.message))
    return run_passes_skipping_failures(mod, recipe, target)


def count_operators(mod: Any) -> dict[str, int]:
    """Count a graph's calls by the name of the operator or tensor function."""
    functions = [value for value in mod.functions.values() if isinstance(value, relax.Function)]
    return dict(Counter(callee(call) for function in functions for call in _calls(function)))


def _calls(value: Any) -> Iterator[Any]:
    """Yield all calls in a value of Relax's normal form, in which no call is an argument."""
    if isinstance(value, relax.Call):
        yield value
    elif isinstance(value, relax.SeqExpr):
        for block in value.blocks:
            for binding in block.bindings:
                yield from _calls(binding.value)
    elif isinstance(value, relax.Function):
        yield from _calls(value.body)
    elif isinstance(value, relax.If):
        yield from _calls(value.true_branch)
        yield from _calls(value.false_branch)


def callee(call: Any) -> str:
    name = str(call.op.name) if isinstance(call.op, tvm.ir.Op) else "call"
    if name == "relax.call_tir":
        return str(call.args[0].name_hint)
    return name.removeprefix("relax.")


@contextmanager
def name_pass_in_errors(name: str) -> Iterator[None]:
    """Turn a graph pass's errors into PassFailed or InvalidRequest, with the pass's name."""
    try:
        yield
    except NOT_THE_PASS as error:
        if not isinstance(error, Unsupported):
            raise
        raise InvalidRequest(f"cannot run the graph pass {name}: {describe_tvm_error(error)}") from error
    except Exception as error:
        if isinstance(error, AttributeError | ImportError) and name not in OWN_PASSES:
            raise InvalidRequest(
                f"TVM {tvm.__version__} has no graph pass {name}",
                hint="name another recipe, or install the TVM that has this pass",
            ) from error
        raise PassFailed(name, describe_tvm_error(error)) from error


def _count_functions_and_calls(mod: Any) -> tuple[int, int]:
    functions = sum(isinstance(function, tvm.tirx.PrimFunc) for function in mod.functions.values())
    return functions, sum(count_operators(mod).values())
