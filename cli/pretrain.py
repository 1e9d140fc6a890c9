"""The command that pretrains base cost models, which propose first rounds of unmeasured tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.dataset_options import DatasetPlace, OpOption, SnapshotOption, TargetOption, dataset
from cli.run_service_part import installed
from cli.terminal.job_options import known
from cli.terminal.option_groups import shared
from cli.terminal.output import JsonOption, print_json, print_note, stdout, table
from cli.terminal.progress_bars import bar
from cli.training_data import lowering_in, note_skipped, read_parquet, training_data_in
from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import check_name
from mallorn.core.targets import parse_target
from mallorn.wording.format_values import Column

if TYPE_CHECKING:
    from research.pretraining.pretrain import PretrainedBase

COLUMNS: "Final[Sequence[Column[PretrainedBase]]]" = (
    Column("MODEL", lambda base: str(base.name)),
    Column("ACTIVE", lambda base: "yes" if base.active else "no"),
    Column("TASKS", lambda base: base.metrics.tasks),
    Column("ROWS", lambda base: base.rows),
    Column("PAIRS IN ORDER", lambda base: base.metrics.pairwise),
    Column("PEAK AT 1", lambda base: base.metrics.peak_1),
    Column("JUDGED", lambda base: base.metrics.split),
    Column("TARGET", lambda base: base.target, cut=True),
)


@shared
def pretrain(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help=f"Cost model: {known('cost_model')}.")
    ] = JobOptions().cost_model,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="PATH", help="Learn from a Parquet file or an export's directory instead."
        ),
    ] = None,
    snapshot: SnapshotOption = None,
    target: TargetOption = None,
    op: OpOption = None,
    home: Annotated[
        str | None,
        typer.Option("--for", metavar="TARGET", help="Bases for this target, from the rows of all targets."),
    ] = None,
    foreign: Annotated[
        bool,
        typer.Option("--foreign", help="Learn from TenSet's imported records, too; tlp and mtl-tlp can."),
    ] = False,
    choose: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Learn from only this share of the rows, chosen as most informative (TCL)."
        ),
    ] = None,
    *,
    place: DatasetPlace,
    as_json: JsonOption = False,
) -> None:
    """Fit a base model per operator and target; it proposes first rounds, and other models build on it."""
    check_name("cost_model", model)
    target_of = None if home is None else parse_target(home)
    if source is not None and (snapshot or target or op):
        raise InvalidRequest(
            f"{source} is taken whole; --snapshot, --target and --op are about a database",
            hint="mallorn dataset export DIR --op OP   (then --from DIR)",
        )
    if foreign and home is None:
        raise InvalidRequest(
            "records of other tuners name no cores, so that no job has their targets",
            hint=f"mallorn pretrain {model} --foreign --for TARGET",
        )
    if choose is not None and not 0 < choose <= 1:
        raise InvalidRequest(
            f"a share of the rows is above 0 and at most 1, and {choose:g} is not",
            hint=f"mallorn pretrain {model} --choose 0.25",
        )
    with installed("worker"):
        from research.pretraining.pretrain import WORTH_PAIRS, only_foreign
        from research.pretraining.pretrain import pretrain as fit_bases
    with dataset(*place, create=source is not None) as database, lowering_in(database) as lowering:
        examples = (
            training_data_in(database, snapshot, target, op) if source is None else read_parquet(source)
        )
        if foreign:
            from research.pretraining.from_tuner_logs import with_foreign

            examples = with_foreign(database, examples, model, op)
        note_skipped(examples)
        with bar("fitting") as progress:
            bases = list(fit_bases(database, examples, model, progress, lowering, target_of, choose))
    if too_small := [f"{base.op} ({base.rows})" for base in bases if base.name is None]:
        print_note(f"too few measurements to learn from: {', '.join(too_small)}")
    stored_bases = [base for base in bases if base.name is not None]
    if not stored_bases:
        raise InvalidRequest(
            f"none of {len(bases)} operators has enough measurements for a base",
            hint="mallorn dataset stats   (then tune, or import, some more)",
        )
    if as_json:
        print_json(
            [
                {"model": str(base.name), "op": base.op, "target": base.target, "rows": base.rows}
                | base.metrics.model_dump(exclude_unset=True)
                | {"active": base.active, "snapshot": examples.snapshot}
                for base in stored_bases
            ]
        )
    else:
        stdout().print(table(stored_bases, COLUMNS))
    for base in stored_bases:
        if base.active:
            continue
        share, split = base.metrics.pairwise, base.metrics.split
        accuracy = "could not be judged" if share is None else f"orders {share:.0%} of pairs right"
        cause = f"it {accuracy} ({split}), 50% is chance and {WORTH_PAIRS:.0%} are asked for"
        if only_foreign(base.metrics):
            cause = f"it {accuracy} ({split}), and all of them are other tuners'"
        print_note(
            f"{base.name} is stored and not active: {cause}; use it nevertheless with   "
            f"mallorn costmodels activate {base.name} --target '{base.target}'"
        )
    if any(base.active for base in bases):
        print_note("new tasks' first rounds use the active ones from now on, whatever the job's cost model")
