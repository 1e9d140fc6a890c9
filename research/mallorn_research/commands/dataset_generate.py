"""The command that measures random tasks like those of real networks, on idle devices."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mallorn.cli.terminal.job_options import SeedOption, TargetOption
from mallorn.cli.terminal.output import JsonOption, Place, key_columns, print_note, print_rows
from mallorn.cli.tune_and_resume import interrupt_on_signals
from mallorn.client.job import Job
from mallorn.client.local_service import Connected, connected_stack, resolve_requested_target
from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import LOCAL
from mallorn_research.commands.wait_until_tuned import SEARCHERS, wait_for_device, wait_until_tuned

if TYPE_CHECKING:
    from mallorn_research.generate.task_rule_file import Drawn

PRIORITY: Final = -1000  # after all other jobs
# Columns of the tasks that `--dry-run` lists, and of submitted jobs.
TASK_COLUMNS: Final = key_columns(job="JOB", kind="KIND", shape="SHAPE", candidates="CANDIDATES")
JOB_COLUMNS: Final = key_columns(id="JOB", name="NAME", search="SEARCH", tasks="TASKS", trials="TRIALS")


def generate(
    tasks: Annotated[int, typer.Option(min=1, max=10_000, help="How many tasks to draw.")] = 16,
    candidates: Annotated[int, typer.Option(min=2, max=100_000, help="Candidates of each task.")] = 64,
    searched: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Share of them that the default searcher chooses; others are random."
        ),
    ] = 0.5,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only tasks of this kind; repeatable.")
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A rule file of your own instead of Mallorn's.")
    ] = None,
    per_job: Annotated[int, typer.Option("--per-job", min=1, max=64, help="Tasks in one job.")] = 8,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be measured.")] = False,
    target: TargetOption = LOCAL,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Draw random tasks like those of real networks and measure candidates of them, at the lowest priority.

    A running service measures them when no other job needs its devices. If the service is
    started here, the command waits for them.
    """
    from mallorn_research.generate.task_rule_file import OURS, draw, read_rules
    from mallorn_research.generate.tasks_as_onnx import DIMENSIONS

    kinds = read_rules(rules or OURS, DIMENSIONS)
    unknown = sorted(set(kind or ()) - {task_kind.name for task_kind in kinds})
    if unknown:
        names = ", ".join(task_kind.name for task_kind in kinds)
        raise InvalidRequest(f"the rules have no task kind {unknown[0]!r}", hint=f"known: {names}")
    random_tasks = draw([task_kind for task_kind in kinds if not kind or task_kind.name in kind], tasks, seed)
    groups = [random_tasks[start : start + per_job] for start in range(0, len(random_tasks), per_job)]
    if dry_run:
        listed_tasks = [
            {
                "job": number,
                "kind": task.kind,
                "shape": " ".join(f"{name}={size}" for name, size in task.shape),
                "candidates": candidates,
            }
            for number, group in enumerate(groups)
            for task in group
        ]
        print_rows(listed_tasks, TASK_COLUMNS, as_json, "")
        return
    searched_count = candidates - round(candidates * (1 - searched))
    shares = dict(zip(SEARCHERS, (candidates - searched_count, searched_count), strict=True))
    target = resolve_requested_target(target, not place.url)
    with interrupt_on_signals(), connected_stack(*place) as stack:
        wait_for_device(stack)
        jobs: list[Job] = []
        for number, group in enumerate(groups):
            jobs += _submit(stack, group, number, shares, target, seed)
        rows = [
            {
                "id": status.id,
                "name": status.name,
                "search": status.options.search,
                "tasks": (status.trials or 0) // (status.options.task_trials or 1),
                "trials": status.trials or 0,
            }
            for status in (job.status for job in jobs)
        ]
        print_rows(rows, JOB_COLUMNS, as_json, "")
        info = None if stack.data is None else stack.data.read_stack()
        if info is None or not info.until_unused:
            note = "these jobs run when no other job needs the devices; list them with   mallorn jobs"
            print_note(note)
            return
        for number, job in enumerate(jobs, 1):
            print_note(f"job {job.id}, {number} of {len(jobs)}, is measured")
            wait_until_tuned(job, f"mallorn show {job.id}")


def _submit(
    stack: Connected, group: "Sequence[Drawn]", number: int, shares: Mapping[str, int], target: str, seed: int
) -> list[Job]:
    """Submit a network of the tasks as one job per searcher; they share measurements."""
    from mallorn_research.generate.task_rule_file import network_name
    from mallorn_research.generate.tasks_as_onnx import network, only_patterns

    name = network_name(seed, number)
    with TemporaryDirectory(prefix="mallorn-generate-") as scratch:
        file = Path(scratch, f"{name}.onnx")
        file.write_bytes(network(group).SerializeToString(deterministic=True))
        model_id = stack.api.upload(file).id
    return [
        stack.api.submit(
            model_id,
            target,
            share * len(group),
            None,
            seed,
            name,
            PRIORITY,
            search=search,
            task_trials=share,
            policy="round-robin",
            only=only_patterns(group),
        )
        for search, share in shares.items()
        if share
    ]
