"""Report what the graph passes of a recipe do to a model, phase by phase."""

from pathlib import Path

from mallorn.core.errors import UnknownName
from mallorn.graphc.core.graph_pass import Report
from mallorn.graphc.core.pass_registry import OWN_PASSES
from mallorn.graphc.core.pass_runner import run_passes
from mallorn.graphc.phases import BEFORE_SCHEDULES, pass_table
from mallorn.workers.interfaces.model_compiler import PassReport, RecipeReport, Shapes
from mallorn.workers.tvm.graph_recipes import step_json
from mallorn.workers.tvm.import_onnx_to_relax import load_network
from mallorn.workers.tvm.remaining_copies import count_remaining_copies
from mallorn.workers.tvm.run_recipe_passes import PassFailed, as_tvm_target, name_pass_in_errors


def report_passes(
    model_path: str, target: str, recipe: str, input_shapes: Shapes, without: list[str], dump_dir: str | None
) -> RecipeReport:
    """Run the recipe's passes that precede tuning, except those in `without`, and report on
    each. Write the module after each phase to `dump_dir`, if given, as TVMScript. Raises
    InvalidModel, InvalidRequest; UnknownName if `without` names no pass."""
    phases = BEFORE_SCHEDULES[recipe]
    valid_names = {row.name for row in pass_table()} | {step.name for phase in phases for step in phase.steps}
    if unknown := sorted({*without} - valid_names):
        raise UnknownName(f"unknown pass {unknown[0]!r}", hint=f"known: {', '.join(sorted(valid_names))}")

    tvm_target = as_tvm_target(target)
    mod = load_network(model_path, input_shapes, tvm_target).mod
    reports: list[PassReport] = []
    for number, phase in enumerate(phases, start=1):
        for step in phase.steps:
            try:
                with name_pass_in_errors(step.name):
                    mod, step_reports = run_passes(mod, [step_json(step)], tvm_target, without)
            except PassFailed as error:
                if step.name not in OWN_PASSES:
                    raise
                step_reports = [Report(step.name, skipped=error.message)]
            reports += [
                PassReport(
                    phase=phase.name,
                    name=report.name,
                    matched=report.matched,
                    fired=report.fired,
                    left=dict(report.left.most_common()),
                    skipped=report.skipped,
                )
                for report in step_reports
                if report.counts or report.skipped
            ]
        if dump_dir is not None:
            Path(dump_dir, f"{number:02}-{phase.name.replace(' ', '-')}.py").write_text(mod.script())
    return RecipeReport(reports, count_remaining_copies(mod))
