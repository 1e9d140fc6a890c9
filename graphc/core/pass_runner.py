"""Runs a recipe's passes in order, and reports what each did."""

from collections.abc import Collection, Sequence
from typing import Any

import tvm
from tvm.target.codegen import target_has_features

from graphc.core.pass_registry import Step, make_passes
from graphc.core.reporting_pass import Report, ReportingPass


def run(
    mod: Any, steps: Sequence[Step], target: Any, without: Collection[str] = ()
) -> tuple[Any, list[Report]]:
    """The module after the steps, and reports of each.

    A step that the recipe leaves out is skipped, and so is an optional one that TVM refuses. A pass
    named in `without` is skipped, unless the module does not lower without it.
    """
    reports = []
    with target, tvm.transform.PassContext(opt_level=3):
        for step in steps:
            if reason := step.get("left_out"):
                reports.append(Report(step["pass"], skipped=reason))
                continue
            for made in make_passes(step):
                mod, report = _after(mod, made, step, target, without)
                reports.append(report)
    return mod, reports


def _after(mod: Any, made: Any, step: Step, target: Any, without: Collection[str]) -> tuple[Any, Report]:
    stored_name = step["pass"]
    if isinstance(made, ReportingPass):
        reason = _reason_to_skip(made, stored_name, target, without)
        return (mod, Report(made.name, skipped=reason)) if reason else made.applied(mod)
    if stored_name in without:
        return mod, Report(stored_name, skipped="switched off")
    try:
        return made(mod), Report(stored_name, counts=False)
    except (LookupError, RuntimeError, TypeError, ValueError) as error:  # as TVM's own errors come
        if not step.get("optional"):
            raise
        return mod, Report(stored_name, skipped=str(error))


def _reason_to_skip(made: ReportingPass, stored_name: str, target: Any, without: Collection[str]) -> str:
    if not made.must and not {made.name, stored_name}.isdisjoint(without):
        return "switched off"
    if made.targets and not any(target_has_features(feature, target) for feature in made.targets):
        return f"the target has none of {', '.join(made.targets)}"
    return ""
