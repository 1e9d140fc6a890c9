"""Job options as typed keyword arguments, and their checks before a job is submitted."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypedDict

from pydantic import ValidationError

from mallorn.core.errors import InvalidModel, InvalidRequest
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import REGISTRY, check_name
from mallorn.core.virtual_devices import check_measurer_options


class EvaluatorKwargs(TypedDict, total=False):
    """Evaluator options of a job, as keywords; missing ones have their defaults."""

    number: int
    repeat: int
    min_repeat_ms: int
    flush_l2: Literal["auto", "on", "off"]


class SimulatedKwargs(TypedDict, total=False):
    """Options of the measurer `simulated`, as keywords; missing ones have their defaults."""

    seed: int
    device_sec: float
    failure_rate: float


class OptionKwargs(TypedDict, total=False):
    """A job's options, as keywords or as JSON; missing ones have their defaults.

    Type checkers need the fields of JobOptions repeated here; a test compares both.
    """

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
    contention: bool
    wait_for_quiet: bool
    private: bool
    dataset: str
    library: bool
    measurer: str
    recording: str
    simulated: SimulatedKwargs
    round_size: int | None
    task_trials: int | None
    only: list[str]
    build_timeout_sec: float
    run_timeout_sec: float
    evaluator: EvaluatorKwargs
    input_shapes: dict[str, list[int]]
    dynamic: dict[str, list[int]]


def check_option_kwargs(options: OptionKwargs) -> None:
    """Raise InvalidRequest for an unknown option, or an invalid value or combination."""
    try:
        check_options(JobOptions.model_validate(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known_names = ", ".join(sorted(JobOptions.model_fields))
            raise InvalidRequest(f"there is no option {name}", hint=f"known: {known_names}") from None
        raise InvalidRequest(f"the option {name}: {first['msg']}", hint="mallorn tune --help") from None


def check_options(options: JobOptions, trials: int | None = None, minutes: float | None = None) -> None:
    """Raise InvalidRequest if options contradict, or name something not registered."""
    for seam in sorted(REGISTRY.keys() & JobOptions.model_fields.keys()):
        check_name(seam, getattr(options, seam))
    check_measurer_options(options)
    _check_mode(options, trials, minutes)


def _check_mode(options: JobOptions, trials: int | None, minutes: float | None) -> None:
    """Raise InvalidRequest if the job's mode measures nothing but an option needs that."""
    if options.needs_measurements:
        return
    is_set_by_option = {
        "--option measurer=detached": options.is_detached,
        f"--trials {trials}": bool(trials),
        "--minutes": minutes is not None,
        "--dynamic": bool(options.dynamic),
        "--contention": options.contention,
        "task_trials": options.task_trials is not None,
    }
    for option, is_set in is_set_by_option.items():
        if is_set:
            raise InvalidRequest(
                f"{option} is for jobs that measure candidates, and --mode {options.mode} measures none",
                hint="mallorn tune MODEL --mode search   (or leave one of the two out)",
            )


Shape = Sequence[int | str]  # names of free dimensions, `?` for one without
CHANNELS: Final = (1, 3, 4)  # of pictures
PICTURE_SIDE: Final = 224
SEQUENCE: Final = 128


def guess_sizes(shapes: Mapping[str, Shape]) -> dict[str, list[int]]:
    """Return likely shapes of inputs with free dimensions: one picture, or one sequence.

    A name of a dimension has one size. ONNX does not tell what a dimension means.
    """
    sizes: dict[int | str, int] = {shape[0]: 1 for shape in shapes.values() if shape and shape[0] != "?"}
    for shape in shapes.values():
        for axis, size in enumerate(shape):
            if isinstance(size, str) and size != "?":
                sizes.setdefault(size, _guess_size(shape, axis))
    return {
        name: [
            size if isinstance(size, int) else sizes.get(size, _guess_size(shape, axis))
            for axis, size in enumerate(shape)
        ]
        for name, shape in shapes.items()
    }


def _guess_size(shape: Shape, axis: int) -> int:
    channels_first, channels_last = axis in (2, 3), axis in (1, 2)
    if len(shape) == 4 and (
        (channels_first and shape[1] in CHANNELS) or (channels_last and shape[3] in CHANNELS)
    ):
        return PICTURE_SIDE
    is_length = axis == len(shape) - 1 or shape[axis] != "?"
    return SEQUENCE if axis and is_length else 1


def free_dimensions_error(
    free: Mapping[str, Shape], fixed: Mapping[str, Sequence[int]] | None
) -> InvalidModel:
    """Return an error with the options that fix the inputs `free`; `fixed` shapes are given already."""
    texts = [f"{name} [{', '.join(map(str, shape))}]" for name, shape in free.items()]
    bound = guess_sizes(free)
    hint = " ".join(f"--input-shape {name}:{','.join(map(str, shape))}" for name, shape in bound.items())
    largest = {
        label: max(64, size)
        for name, shape in free.items()
        for label, size in zip(shape, bound[name], strict=True)
        if isinstance(label, str)
    }
    if "?" not in largest:
        ranges = " ".join(f"--dynamic {label}=1..{most}" for label, most in largest.items())
        hint += f"   or, for a range,  {ranges}"
    hint += "   (guessed: take the sizes that your program uses)"
    message = f"these inputs have free dimensions: {'; '.join(texts)}"
    return InvalidModel(message, hint=hint, suggest={"input_shapes": {**(fixed or {}), **bound}})
