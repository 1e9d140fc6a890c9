"""Running a recipe's passes one by one, and telling what each did."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relax

from graphc.core.pass_runner import run
from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import parse_target
from mallorn.core.values.graph_report import GraphStep, RecipeStep
from workers.tvm.check_onnx_model import plain
from workers.tvm.graph_recipes import step_json
from workers.tvm.parsed_program_cache import parse_tvm_target

TargetLike = str | dict[str, object]


class PassFailed(InvalidRequest):
    """TVM cannot run a graph pass on this model."""


def as_tvm_target(target: TargetLike) -> Any:
    """TVM's form of a target in any of the forms `parse_target` reads."""
    return parse_tvm_target(parse_target(target).text)


def run_steps(mod: Any, steps: tuple[RecipeStep, ...], target: Any) -> tuple[Any, list[GraphStep]]:
    """The module after the steps, and how many functions and operators there were around each."""
    report: list[GraphStep] = []
    functions, ops = _sizes(mod)
    for step in steps:
        with naming_the_pass(step.name):
            mod, (told, *_) = run(mod, [step_json(step)], target)
        skipped = {"skipped": plain(RuntimeError(told.skipped))} if told.skipped else {}
        functions_before, ops_before = functions, ops
        functions, ops = _sizes(mod)
        report.append(
            GraphStep(
                name=step.name,
                functions_before=functions_before,
                ops_before=ops_before,
                functions_after=functions,
                ops_after=ops,
                **skipped,
            )
        )
    return mod, report


def operators(mod: Any) -> dict[str, int]:
    """How often each operator, or each kind of tensor function, is called in the graph."""
    functions = [each for each in mod.functions.values() if isinstance(each, relax.Function)]
    return dict(Counter(callee(call) for each in functions for call in _calls(each)))


def _calls(value: Any) -> Iterator[Any]:
    """Of a module in normal form: a call's arguments are no calls."""
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
    """The operator, or the tensor function, that is called."""
    name = str(call.op.name) if isinstance(call.op, tvm.ir.Op) else "call"
    if name == "relax.call_tir":
        return str(call.args[0].name_hint)
    return name.removeprefix("relax.")


@contextmanager
def naming_the_pass(name: str) -> Iterator[None]:
    """Turns errors of a graph pass into InvalidRequest, with the pass's name."""
    try:
        yield
    except (AttributeError, ImportError) as error:  # the recipe names what this TVM does not have
        raise InvalidRequest(f"cannot run the graph pass {name}: {plain(error)}") from error
    except (AssertionError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise PassFailed(f"cannot run the graph pass {name}: {plain(error)}") from error


def _sizes(mod: Any) -> tuple[int, int]:
    functions = sum(isinstance(function, tvm.tirx.PrimFunc) for function in mod.functions.values())
    return functions, sum(operators(mod).values())
