"""The command that reports which graph passes change a model, and why others do not."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mallorn.cli.host_checks import resolve_target, tvm_process
from mallorn.cli.run_service_part import require_packages
from mallorn.cli.terminal.job_options import ShapeOption, TargetOption, accepted_names_text, parse_input_shape
from mallorn.cli.terminal.output import JsonOption, print_json, print_note, print_rows, stdout, table
from mallorn.client.onnx_export import as_onnx, find_model_file
from mallorn.core.targets import LOCAL
from mallorn.wording.format_values import Column

if TYPE_CHECKING:
    from mallorn.core.values.graph_report import RemainingCopy
    from mallorn.graphc.phases import PassEntry
    from mallorn.workers.interfaces.model_compiler import PassReport


def passes(
    model: Annotated[Path | None, typer.Argument(metavar="[MODEL]", help="An ONNX file.")] = None,
    target: TargetOption = LOCAL,
    recipe: Annotated[
        str, typer.Option("--recipe", help=f"One of {accepted_names_text('recipe')}.")
    ] = "tuned",
    precision: Annotated[str, typer.Option("--precision", help="float32, bf16, fp16, or tf32.")] = "float32",
    input_shape: ShapeOption = None,
    omitted_passes: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="PASS", help="Leave a pass out, by its name. Repeatable."),
    ] = None,
    dump: Annotated[
        Path | None,
        typer.Option("--dump", metavar="DIR", help="Write the program after each phase, as TVMScript."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the graph passes, or report where each fires on a model, why not, and what is copied."""
    with require_packages("worker"):
        if model is None:
            with tvm_process() as graphs:
                return print_rows(graphs.list_passes(), ENTRY_COLUMNS, as_json, "there are no passes")
        from mallorn.workers.sandbox.sandbox import FILE_BYTES
        from mallorn.workers.sandbox.untrusted_files import copy_out, untrusted_folder
        from mallorn.workers.tvm.network.graph_recipes import recipe_for

        shapes = dict(parse_input_shape(text) for text in input_shape or ())
        parsed_target, _ = resolve_target(target, is_elsewhere=True)
        with as_onnx(find_model_file(model)) as file, untrusted_folder("mallorn-dump-") as dumped:
            with tvm_process(file, writes=[dumped]) as graphs:
                report = graphs.report_passes(
                    str(file.absolute()),
                    parsed_target.text,
                    recipe_for(recipe, parsed_target, precision).name,
                    shapes,
                    omitted_passes or [],
                    str(dumped) if dump else None,
                )
            if dump is not None:
                dump.mkdir(parents=True, exist_ok=True)
                for phase in sorted(dumped.iterdir()):
                    copy_out(dumped, phase.name, dump / phase.name, FILE_BYTES)
    if as_json:
        return print_json(report)
    stdout().print(table(report.passes, REPORT_COLUMNS))
    print_note(f"left: {copies_text(report.copies)}")
    if dump is not None:
        print_note(f"the program after each phase is in {dump}")


def copies_text(copies: Iterable["RemainingCopy"]) -> str:
    """Return a text on the copies left: number by kind, and operators that need them."""
    counts_by_kind = defaultdict[str, Counter[str]](Counter)
    for copy in copies:
        counts_by_kind[copy.kind][copy.required_by] += copy.calls
    texts = []  # for example: 3 transposes (2 by conv2d, 1 by the output)
    for kind, counts in counts_by_kind.items():
        name = kind if counts.total() == 1 else "copies" if kind == "copy" else f"{kind}s"
        sources = ", ".join(f"{count} by {source}" for source, count in counts.most_common())
        texts.append(f"{counts.total()} {name} ({sources})")
    return ", ".join(texts) or "no copies"


REPORT_COLUMNS: "Final[Sequence[Column[PassReport]]]" = (
    Column("PHASE", lambda report: report.phase),
    Column("PASS", lambda report: report.name),
    Column("MATCHED", lambda report: report.matched),
    Column("FIRED", lambda report: report.fired),
    Column(
        "WHY NOT",
        lambda report: (
            report.skipped or "; ".join(f"{count} x {cause}" for cause, count in report.left.items())
        ),
    ),
)
ENTRY_COLUMNS: "Final[Sequence[Column[PassEntry]]]" = (
    Column("PASS", lambda entry: entry.name),
    Column("PHASES", lambda entry: ", ".join(entry.phases)),
    Column("PURPOSE", lambda entry: entry.purpose),
)
