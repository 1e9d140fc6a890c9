"""The command that records measurements in a file, to run searchers without a device."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from mallorn.cli.terminal.job_options import OnlyOption, SeedOption, TargetOption
from mallorn.cli.terminal.output import JsonOption, key_columns, print_note, print_rows
from mallorn.cli.terminal.progress_bars import upload_with_bar
from mallorn.cli.tune_and_resume import interrupt_on_signals
from mallorn.client.local_service import Connected, connected_stack, resolve_requested_target
from mallorn.client.onnx_export import find_model_file
from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import Settings
from mallorn.core.targets import LOCAL
from mallorn.core.version import VERSION
from mallorn_research.commands.wait_until_tuned import SEARCHERS, wait_for_device, wait_until_tuned

ROUND_SIZE: Final = 16
#: More tasks than any model has, so that only the budget of each task ends a job.
MOST_TASKS: Final = 1000
_COUNTS: Final = {"sketches": "SKETCHES", "candidates": "CANDIDATES", "failures": "FAILURES"}
COLUMNS: Final = key_columns(name="NAME", op="OPERATOR", **_COUNTS, best_us="BEST (us)")


def record(
    models: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[MODEL]...", help="ONNX files to measure; without any, earlier measurements are used."
        ),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Keep this many tasks, some of every operator; default: all.")
    ] = None,
    only: OnlyOption = None,
    candidates: Annotated[
        int,
        typer.Option(
            min=2, help="Distinct candidates to measure of each task; tasks with fewer are left out."
        ),
    ] = 400,
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")] = Path("recording.parquet"),
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", help="A data directory to measure in or to read; repeatable.  [MALLORN_DATA_DIR]"
        ),
    ] = None,
    target: TargetOption = LOCAL,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Record many candidates of some tasks in a file, to compare searchers without a device."""
    # Imported first, so that a missing pyarrow is reported before hours of measuring.
    from mallorn_research.replay.recorded_tasks_from_dataset import collect_recorded_tasks
    from mallorn_research.replay.recording_file import select_every_operator, write_tasks

    directories = [path.expanduser() for path in data or [Settings().data_dir]]
    if models:
        for model in models:
            find_model_file(model)
        if len(directories) > 1:
            message = "models are measured in one data directory"
            raise InvalidRequest(message, hint=f"mallorn record MODEL --data {directories[0]}")
        target = resolve_requested_target(target, is_here=True)
        with interrupt_on_signals(), connected_stack(None, None, directories[0]) as stack:
            wait_for_device(stack)
            for model in models:
                _measure(stack, model, candidates, target, seed, only or [])
    recorded_tasks, hosts = collect_recorded_tasks(directories, candidates)
    chosen_tasks = recorded_tasks if tasks is None else select_every_operator(recorded_tasks, tasks)
    write_tasks(out, chosen_tasks, {"hosts": hosts, "mallorn": VERSION, "written_at": int(time.time())})
    rows = []
    for task in chosen_tasks:
        counts = {"sketches": len(task.sketches), "candidates": len(task.trials), "failures": task.failures}
        rows.append({"name": task.name, "op": task.op, **counts, "best_us": task.optimum_us})
    print_rows(rows, COLUMNS, as_json, "")
    print_note(f"{sum(len(task.trials) for task in chosen_tasks)} candidates of {len(rows)} tasks in {out}")


def _measure(
    stack: Connected, model: Path, candidates: int, target: str, seed: int, only: Sequence[str]
) -> None:
    model_id = upload_with_bar(stack.api, str(model))
    # No job repeats the measurements of an earlier one. The second has a round more,
    # because failures that a worker caused, not its candidate, are not recorded.
    counts = candidates // 2, -(-candidates // 2) + ROUND_SIZE
    for search, count in zip(SEARCHERS, counts, strict=True):
        job = stack.api.submit(
            model_id,
            target,
            count * MOST_TASKS,
            seed=seed,
            name=model.stem,
            search=search,
            task_trials=count,
            policy="round-robin",
            round_size=ROUND_SIZE,
            stopping="fixed",  # gives all times of a recording the same precision
            only=list(only),
        )
        print_note(f"job {job.id}: {count} candidates of each task of {model} by {search}")
        wait_until_tuned(job, f"mallorn show {job.id}")
