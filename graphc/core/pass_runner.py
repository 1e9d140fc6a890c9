"""Run a recipe's passes in order, and report what each did."""

from collections.abc import Collection, Sequence
from typing import Any

import tvm
from tvm.target.codegen import target_has_features

from mallorn.graphc.core.graph_pass import Report, ReportingPass
from mallorn.graphc.core.pass_registry import Step, make_passes


def run_passes(
    mod: Any, steps: Sequence[Step], target: Any, switched_off: Collection[str] = ()
) -> tuple[Any, list[Report]]:
    """Run the steps; return the resulting module, and a report on each pass.

    Steps whose `left_out` gives a reason, optional steps on which TVM raises an error, and
    passes for CPU features that the target lacks are skipped. So are passes named in
    `switched_off`, unless they are required.
    """
    reports = []
    with target, tvm.transform.PassContext(opt_level=3):
        for step in steps:
            if reason := step.get("left_out"):
                reports.append(Report(step["pass"], skipped=reason))
                continue
            for pass_ in make_passes(step):
                mod, report = _run_pass(mod, pass_, step, target, switched_off)
                reports.append(report)
    return mod, reports


def _run_pass(
    mod: Any, pass_: Any, step: Step, target: Any, switched_off: Collection[str]
) -> tuple[Any, Report]:
    if isinstance(pass_, ReportingPass):
        if not pass_.is_required and pass_.name in switched_off:
            return mod, Report(pass_.name, skipped="switched off")
        features = pass_.targets
        if features and not any(target_has_features(feature, target) for feature in features):
            return mod, Report(pass_.name, skipped=f"the target has none of {', '.join(features)}")
        return pass_.apply(mod)
    name = step["pass"]
    if name in switched_off:
        return mod, Report(name, skipped="switched off")
    try:
        return pass_(mod), Report(name, counts=False)
    except (LookupError, RuntimeError, TypeError, ValueError) as error:  # the classes of TVM's own errors
        if not step.get("optional"):
            raise
        return mod, Report(name, skipped=str(error))
