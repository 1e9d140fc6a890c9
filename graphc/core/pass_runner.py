"""Run a recipe's passes in order, and report what each did."""

from collections.abc import Collection, Sequence
from typing import Any

import tvm
from tvm.target.codegen import target_has_features

from graphc.core.pass_registry import Step, make_passes
from graphc.core.reporting_pass import Report, ReportingPass


def run(
    mod: Any, steps: Sequence[Step], target: Any, without: Collection[str] = ()
) -> tuple[Any, list[Report]]:
    """Return the module after the steps, and reports on each pass.

    Steps that the recipe leaves out are skipped, and so are optional steps that TVM refuses. A
    pass named in `without` is skipped, unless the module does not lower without it.
    """
    reports = []
    with target, tvm.transform.PassContext(opt_level=3):
        for step in steps:
            if reason := step.get("left_out"):
                reports.append(Report(step["pass"], skipped=reason))
                continue
            for pass_ in make_passes(step):
                mod, report = _after(mod, pass_, step, target, without)
                reports.append(report)
    return mod, reports


def _after(mod: Any, pass_: Any, step: Step, target: Any, without: Collection[str]) -> tuple[Any, Report]:
    stored_name = step["pass"]
    if isinstance(pass_, ReportingPass):
        reason = _reason_to_skip(pass_, stored_name, target, without)
        return (mod, Report(pass_.name, skipped=reason)) if reason else pass_.applied(mod)
    if stored_name in without:
        return mod, Report(stored_name, skipped="switched off")
    try:
        return pass_(mod), Report(stored_name, counts=False)
    except (LookupError, RuntimeError, TypeError, ValueError) as error:  # the classes of TVM's own errors
        if not step.get("optional"):
            raise
        return mod, Report(stored_name, skipped=str(error))


def _reason_to_skip(pass_: ReportingPass, stored_name: str, target: Any, without: Collection[str]) -> str:
    if not pass_.must and not {pass_.name, stored_name}.isdisjoint(without):
        return "switched off"
    if pass_.targets and not any(target_has_features(feature, target) for feature in pass_.targets):
        return f"the target has none of {', '.join(pass_.targets)}"
    return ""
