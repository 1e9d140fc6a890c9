"""What somebody asks for of a job's options: keywords that an editor completes, checked before they go."""

from typing import Literal, TypedDict

from pydantic import ValidationError

from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import REGISTRY, check_name
from mallorn.core.stand_in_measurers import check_recording


class EvaluatorAsked(TypedDict, total=False):
    """What somebody asks for of the evaluator."""

    number: int
    repeat: int
    min_repeat_ms: int
    flush_l2: Literal["auto", "on", "off"]


class SimulatedAsked(TypedDict, total=False):
    """What somebody asks for of the measurer `simulated`."""

    seed: int
    device_sec: float
    failure_rate: float


class OptionKwargs(TypedDict, total=False):
    """What somebody asks for of a job's options, as keywords or as JSON; what is left out has its default."""

    recipe: str
    precision: str
    mode: str
    search: str
    cost_model: str
    sampler: str
    stopping: str
    policy: str
    families: str
    contests: str
    contention: str
    wait_for_quiet: str
    private: str
    measurer: str
    recording: str
    simulated: SimulatedAsked
    round_size: int | None
    task_trials: int | None
    only: list[str]
    build_timeout_sec: float
    run_timeout_sec: float
    evaluator: EvaluatorAsked
    input_shapes: dict[str, list[int]]
    dynamic: dict[str, list[int]]


def check_asked(asked: OptionKwargs) -> None:
    """Raise InvalidRequest for what no job of this version may ask for."""
    try:
        check_options(JobOptions.model_validate(asked))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = ", ".join(sorted(JobOptions.model_fields))
            raise InvalidRequest(f"there is no option {name}", hint=f"known: {known}") from None
        raise InvalidRequest(f"the option {name}: {first['msg']}", hint="mallorn tune --help") from None


def check_options(options: JobOptions) -> None:
    """Raise InvalidRequest for a choice that is not registered, and where a replay could not begin."""
    for seam in sorted(REGISTRY.keys() & JobOptions.model_fields.keys()):
        check_name(seam, getattr(options, seam))
    check_recording(options)
    check_mode(options)


def check_mode(options: JobOptions, trials: int | None = None, minutes: float | None = None) -> None:
    """Raise InvalidRequest where a job that measures nothing is asked for what only measuring brings."""
    if options.searches:
        return
    asked = {
        "--option measurer=detached": options.is_detached,
        f"--trials {trials}": bool(trials),
        "--minutes": minutes is not None,
        "--dynamic": bool(options.dynamic),
        "--contention on": options.beside_others,
        "task_trials": options.task_trials is not None,
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise InvalidRequest(
                f"{what} is for jobs that measure candidates, and {options.mode} measures none",
                hint="mallorn tune MODEL --mode search   (or leave one of both out)",
            )
