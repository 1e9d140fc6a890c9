"""The command that puts jobs beside one another."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from cli.service.reading import reader
from cli.terminal.output import (
    JsonOption,
    Place,
    duration,
    latency,
    print_json,
    print_note,
    stdout,
    table,
)
from cli.terminal.shared import shared
from mallorn.core.errors import InvalidRequest
from mallorn.job import Job
from mallorn.results.comparison import Side
from mallorn.results.comparison import compare as compared

DIFFERENT: Final = ("search", "cost_model", "sampler", "stopping", "policy", "families", "round_size")
Row = dict[str, Any]


@shared
def compare(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB JOB...", help="The ids of two or more jobs.")],
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Put jobs beside one another: latency, trials, seconds, the same at equal effort, and task by task."""
    if len(jobs) < 2:
        raise InvalidRequest("one job has nothing to be compared with", hint="mallorn compare JOB OTHER")
    with reader(*place) as api:
        found = compared([_side(api.job(job)) for job in jobs])
    if as_json:
        print_json(found)
        return
    stdout().print(table(_facts(found), _columns(found)))
    stdout().print()
    stdout().print(table(_tasks(found), _columns(found, "TASK")))
    for line in _judgement(found):
        stdout().print(line)
    for warning in found["warnings"]:
        print_note(f"beware: {warning}")


def _judgement(found: Row) -> list[str]:
    """Who is the fastest and by which figure, and a word on the other one where it says the opposite."""
    told = found["judgement"]
    return ["", *(line for line in (told["why"], told["note"]) if line)] if told else []


def _side(job: Job) -> Side:
    return Side.of(job.body, job.tasks(), list(job.rounds()))


def _columns(found: Row, first: str = "JOB") -> dict[str, str]:
    return {"fact": first} | {str(at): job["id"] for at, job in enumerate(found["jobs"])}


def _facts(found: Row) -> Iterator[Row]:
    jobs = found["jobs"]
    yield _line("name", (job["name"] for job in jobs))
    yield _line("state", (job["state"] for job in jobs))
    for option in DIFFERENT:
        chosen = [job["options"].get(option) for job in jobs]
        if len(set(chosen)) > 1:
            yield _line(option.replace("_", " "), map(str, chosen))
    yield _line("trials", (f"{job['trials']} ({job['failures']} failed)" for job in jobs))
    yield _line("time", ("-" if job["seconds"] is None else duration(job["seconds"]) for job in jobs))
    yield _latencies("model", [job["model_us"] for job in jobs])
    yield _latencies("sum over tasks", [job["reached_us"] for job in jobs])
    equal = [job["at_equal_trials_us"] for job in jobs]
    yield _latencies(f"after {found['equal_trials']} trials", equal)
    equal = [job["at_equal_seconds_us"] for job in jobs]
    yield _latencies(f"after {duration(found['equal_seconds'])}", equal)


def _tasks(found: Row) -> Iterator[Row]:
    for task in found["tasks"]:
        weight = next(weight for weight in task["weight"] if weight is not None)
        yield _latencies(f"{task['name']} x{weight}", task["latency_us"], task["trials"])


def _latencies(fact: str, values: Sequence[float | None], trials: Sequence[int | None] = ()) -> Row:
    """Latencies, all but the first with their ratio to it; of tasks also the trials."""
    told = [f"{latency(value)}{_ratio(value, values[0]) if at else ''}" for at, value in enumerate(values)]
    if trials:
        told = [
            f"{words}, {count} trials" if count else words for words, count in zip(told, trials, strict=True)
        ]
    return _line(fact, told)


def _ratio(value: float | None, first: float | None) -> str:
    return f" (x{value / first:.3f})" if value is not None and first else ""


def _line(fact: str, values: Any) -> Row:
    return {"fact": fact} | {str(at): value for at, value in enumerate(values)}
