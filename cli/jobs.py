"""Commands that submit jobs and look at them."""

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.service.reading import FIRST_STEP, find_job, reader, source
from cli.service.upload import upload_with_bar
from cli.terminal.options import Choices, Effort
from cli.terminal.output import (
    JsonOption,
    NewestJobArgument,
    Place,
    client,
    duration,
    first_line,
    latency,
    print_json,
    print_note,
    print_rows,
    stdout,
    table,
)
from cli.terminal.shared import shared
from cli.watching.winnings import print_verdict
from mallorn.core.race import beside_onnxruntime
from mallorn.core.states import JobState
from mallorn.core.values.report import FinishReport
from mallorn.wording.results import ENGINE_COLUMNS, latency_rows, left_undone, warnings
from mallorn.wording.tasks import FAMILY_COLUMNS, TASK_COLUMNS, family_rows
from mallorn.wording.units import spent_of

JOB_COLUMNS: Final = {
    "id": "JOB",
    "name": "NAME",
    "state": "STATE",
    "trials": "TRIALS",
    "latency": "LATENCY",
    "beside": "VS ONNXRUNTIME",
    "age": "AGE",
    "reason": "REASON",
}


@shared
def submit(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="An ONNX file, or the id of an uploaded model.")
    ],
    effort: Effort,
    name: Annotated[str | None, typer.Option(help="A name for people; default: the file's.")] = None,
    priority: Annotated[int, typer.Option(help="Higher goes first.")] = 0,
    *,
    choices: Choices,
    as_json: JsonOption = False,
    place: Place,
) -> None:
    """Hand in a model to be tuned, and return at once."""
    options = choices.asked()
    with client(*place) as api:
        model_id = upload_with_bar(api, model)
        job = api.tune(model_id, *effort, name or _stem(model), priority, **options)
    if as_json:
        print_json(job.body)
        return
    stdout().print(job.id)
    print_note(f"submitted; follow it with   mallorn watch {job.id}")


def _stem(model: str) -> str | None:
    path = Path(model)
    return path.stem if path.is_file() else None


@shared
def jobs(
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Those that were archived.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """List jobs, newest first."""
    with reader(*place) as api:
        found = [job.body for job, _ in zip(api.jobs(state, archived), range(limit), strict=False)]
    rows = found if as_json else [_job_row(body) for body in found]
    kind = state or ("archived" if archived else None)
    empty = f"no {kind} jobs" if kind else f"no jobs yet; hand one in with   {FIRST_STEP}"
    print_rows(rows, JOB_COLUMNS, as_json, empty)


def _job_row(body: dict[str, Any]) -> dict[str, Any]:
    progress = body["progress"]
    return {
        **body,
        "trials": spent_of(body, "/"),
        "reason": first_line(body["reason"]),
        "latency": latency(_measured_us(body) or progress["estimated_us"]),
        "beside": beside_onnxruntime(FinishReport.model_validate(body["report"] or {}).latency_us),
        "age": duration(time.time() - body["created_at"]),
    }


def _measured_us(body: dict[str, Any]) -> float | None:
    """The whole tuned model's latency, where it was timed."""
    tuned = ((body["report"] or {}).get("latency_us") or {}).get("tuned")
    return None if tuned is None else float(tuned["median"])


@shared
def show(
    job: NewestJobArgument = None,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Show one job: its budget, what was found and what went wrong."""
    with source(*place) as found:
        body = find_job(found.api, job).body
    if as_json:
        print_json(body)
        return
    stdout().print(table(_facts(body), {"fact": "JOB", "value": body["id"]}))
    timed = latency_rows((body["report"] or {}).get("latency_us") or {})
    if timed:
        stdout().print()
        stdout().print(table(timed, ENGINE_COLUMNS))
    stdout().print()
    for line in left_undone(body["report"] or {}) + warnings(body):
        stdout().print(line, markup=False)
    print_verdict(body, found.words)
    if body["exported"]:
        print_note(f"fetch its schedules with   mallorn schedules {body['id']}{found.words}")


def _facts(body: dict[str, Any]) -> list[dict[str, Any]]:
    progress = body["progress"]
    failures = ", ".join(f"{count} {outcome}" for outcome, count in progress["failures"].items())
    facts = {
        "name": body["name"],
        "state": body["state"],
        "reason": body["reason"],
        "model": body["model_id"],
        "target": body["target"],
        "trials": spent_of(body),
        "minutes": body["minutes"],
        "tasks": f"{progress['tasks_measured']} of {progress['tasks']} measured",
        "failures": failures or "none",
        "estimate": _estimate(progress["estimated_us"]),
    }
    return [{"fact": key, "value": value} for key, value in facts.items() if value not in (None, "")]


def _estimate(estimated_us: float | None) -> str:
    return "" if estimated_us is None else f"{latency(estimated_us)}, the sum over its tasks"


@shared
def tasks(
    job: NewestJobArgument = None,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Print MetaSchedule's table of a job's tasks, and which of them share a cost model and why."""
    with source(*place) as found:
        handle = find_job(found.api, job)
        rows = handle.tasks()
    empty = f"no tasks yet: the model was not imported; look at   mallorn show {handle.id}{found.words}"
    print_rows(rows, TASK_COLUMNS, as_json, empty)
    if not as_json and (families := family_rows(rows)):
        stdout().print()
        stdout().print(table(families, FAMILY_COLUMNS))
