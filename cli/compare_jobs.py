"""The command that compares jobs."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Annotated, Final

import typer

from cli.read_only_client import reader
from cli.terminal.option_groups import shared
from cli.terminal.output import JsonOption, Place, print_json, print_note, stdout, table
from mallorn.core.errors import InvalidRequest
from mallorn.results.compare_jobs import Comparison, Side
from mallorn.results.compare_jobs import compare as compared
from mallorn.wording.format_values import Column, duration, latency

DIFFERENT: Final = ("search", "cost_model", "sampler", "stopping", "policy", "families", "round_size")
Line = list[str]  # a fact's name, and its value for each job


@shared
def compare(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB JOB...", help="The ids of two or more jobs.")],
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """Compare jobs: latency, trials and seconds, latency at equal effort, and task by task."""
    if len(jobs) < 2:
        raise InvalidRequest("one job has nothing to be compared with", hint="mallorn compare JOB OTHER")
    with reader(*place) as api:
        comparison = compared(
            [Side.of(job.status, job.tasks(), list(job.rounds())) for job in map(api.job, jobs)]
        )
    if as_json:
        print_json(comparison)
        return
    stdout().print(table(_facts(comparison), _columns(comparison, "JOB")))
    stdout().print()
    weights = [next(weight for weight in task.weight if weight is not None) for task in comparison.tasks]
    tasks = [
        _latencies(f"{task.name} x{weight}", task.latency_us, task.trials)
        for task, weight in zip(comparison.tasks, weights, strict=True)
    ]
    stdout().print(table(tasks, _columns(comparison, "TASK")))
    if judgement := comparison.judgement:
        stdout().print()
        # The fastest job and its figure, and a note if another figure contradicts it.
        for line in filter(None, (judgement.why, judgement.note)):
            stdout().print(line)
    for warning in comparison.warnings:
        print_note(f"beware: {warning}")


def _columns(comparison: Comparison, first: str) -> list[Column[Line]]:
    job_columns = [Column[Line](job.id, itemgetter(i)) for i, job in enumerate(comparison.jobs, 1)]
    return [Column[Line](first, itemgetter(0)), *job_columns]


def _facts(comparison: Comparison) -> Iterator[Line]:
    jobs = comparison.jobs
    yield ["name", *(job.name for job in jobs)]
    yield ["state", *(job.state for job in jobs)]
    for option in DIFFERENT:
        choices = [str(job.options.get(option)) for job in jobs]
        if len(set(choices)) > 1:
            yield [option.replace("_", " "), *choices]
    yield ["trials", *(f"{job.trials} ({job.failures} failed)" for job in jobs)]
    yield ["time", *("-" if job.seconds is None else duration(job.seconds) for job in jobs)]
    yield _latencies("model", [job.model_us for job in jobs])
    yield _latencies("sum over tasks", [job.reached_us for job in jobs])
    yield _latencies(f"after {comparison.equal_trials} trials", [job.at_equal_trials_us for job in jobs])
    yield _latencies(f"after {duration(comparison.equal_seconds)}", [job.at_equal_seconds_us for job in jobs])


def _latencies(fact: str, values: Sequence[float | None], trials: Sequence[int | None] = ()) -> Line:
    """Return a line of latencies with their ratios to the first and, for tasks, their trials."""
    first, *later_values = values
    ratios = (f" (x{value / first:.3f})" if value is not None and first else "" for value in later_values)
    texts = [
        latency(first),
        *(latency(value) + ratio for value, ratio in zip(later_values, ratios, strict=True)),
    ]
    if trials:
        texts = [
            f"{words}, {count} trials" if count else words for words, count in zip(texts, trials, strict=True)
        ]
    return [fact, *texts]
