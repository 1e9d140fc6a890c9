"""Schema of a job's options, shared by the API, the CLI and the database."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Annotated, Any, Final, Literal, Self, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from mallorn.core.errors import UnknownName
from mallorn.core.registry import list_names
from mallorn.core.states import SEARCH, WRITE, ZERO_SHOT, DatasetUse, Mode
from mallorn.core.target_kind import TargetKind
from mallorn.core.targets import Target
from mallorn.core.version import VERSION

LARGEST_ROUND: Final = 64  # candidates
DEVICE: Final = "tvm"  # measurer on devices that workers reach
DETACHED: Final = "detached"  # measurer of jobs whose device no worker can reach
ON_DEVICES: Final = frozenset({DEVICE, DETACHED})  # measurers on real devices, for which TVM builds
#: Names of removed options, which stored jobs may still have; add a name here to remove one.
RETIRED: Final = frozenset[str]()
#: Options that only `--option` sets, besides groups of options: settings of research and of measuring.
WITHOUT_FLAG: Final = frozenset(
    {"build_timeout_sec", "contests", "measurer", "recording", "run_timeout_sec", "task_trials"}
)
MOST_PATTERNS: Final = 64
MOST_NAMES: Final = 1024  # inputs, or free dimensions, of a model
MOST_AXES: Final = 16


def _check_ascending(bounds: list[int]) -> list[int]:
    if bounds[0] > bounds[1]:
        raise ValueError("the smallest size must come first: LOW..HIGH")
    if not bounds[1]:
        raise ValueError("the largest size must be at least 1")
    return bounds


SizeRange = Annotated[
    list[Annotated[int, Field(ge=0, le=65_536)]],
    Field(min_length=2, max_length=2),
    AfterValidator(_check_ascending),
]
Name = Annotated[str, Field(max_length=200)]


class EvaluatorOptions(BaseModel):
    """How a candidate is timed; names and defaults are MetaSchedule's except `min_repeat_ms`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: Annotated[int, Field(ge=1, le=1000, description="Runs per repeat; their mean counts.")] = 3
    repeat: Annotated[int, Field(ge=1, le=100, description="Repeats; their median is the latency.")] = 1
    min_repeat_ms: Annotated[
        int,
        Field(ge=0, le=10_000, description="Repeats that take less time get more runs. Default on GPUs: 20."),
    ] = 100
    flush_l2: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="Empties a GPU's L2 cache before each run; auto does so only for programs that "
            "read one large input, such as a matrix-vector product."
        ),
    ] = "auto"


class SimulatedOptions(BaseModel):
    """Settings of the measurer `simulated` of mallorn-research."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: Annotated[int, Field(ge=0, description="Seed of the simulated latencies.")] = 0
    device_sec: Annotated[
        float, Field(ge=0, le=600, description="Seconds that each candidate occupies its device.")
    ] = 0.0
    failure_rate: Annotated[
        float, Field(ge=0, le=1, description="Share of candidates that fail, always the same ones.")
    ] = 0.0


class JobOptions(BaseModel):
    """Options of a job. Choices are names in mallorn.core.registry; the defaults suit newcomers.

    The command line, the page and the reference show the descriptions of the fields below.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: Annotated[
        Name,
        Field(description="Graph passes before tuning. direct: no Winograd; plain: TVM's compile_relax."),
    ] = "tuned"
    precision: Annotated[
        Literal["float32", "bf16", "fp16", "tf32"],
        Field(
            description="Data type of the factors of products; sums stay float32. "
            "bf16 is for CPUs with AVX512-BF16 and GPUs from sm_80 on, fp16 for GPUs and aarch64, and "
            "tf32 (float32 with 10 bits of mantissa) for GPUs from sm_80 on."
        ),
    ] = "float32"
    mode: Annotated[
        Mode,
        Field(
            description="How to find schedules. search measures candidates; one-shot chooses without "
            "measuring, then builds and checks; zero-shot only chooses."
        ),
    ] = SEARCH
    search: Annotated[Name, Field(description="Searcher that proposes candidates.")] = "portfolio"
    cost_model: Annotated[
        Name, Field(description="Predicts which candidates are fast. Default on GPUs: kernel-time.")
    ] = "xgboost"
    sampler: Annotated[Name, Field(description="Picks a round's candidates from the scored pool.")] = "topk"
    stopping: Annotated[Name, Field(description="Decides when a timing is precise enough.")] = "racing"
    policy: Annotated[Name, Field(description="Decides which task gets the next round.")] = "dynatune"
    families: Annotated[
        Name, Field(description="Decides which tasks share measurements and a cost model.")
    ] = "operator"
    contests: Annotated[
        Literal["inside", "apart"],
        Field(
            description="How to decide close contests between schedules: by times inside the whole model, "
            "or apart from it."
        ),
    ] = "inside"
    contention: Annotated[
        bool,
        Field(
            description="Also looks for schedules that are fastest on a busy host, measures from how many "
            "other programs on they win, and exports both versions."
        ),
    ] = False
    wait_for_quiet: Annotated[
        bool,
        Field(
            description="Times candidates only in quiet moments: a round waits while other programs "
            "disturb its device, and the job shows which. Off: times are taken in the gaps "
            "that they leave."
        ),
    ] = False
    private: Annotated[
        bool,
        Field(
            description="Hides from other owners what only this model contains: its programs, their "
            "measurements, and the cost models that learn from these."
        ),
    ] = False
    dataset: Annotated[
        DatasetUse,
        Field(
            description="Use of the dataset. write: uses measurements of earlier jobs, and later jobs use "
            "this job's; read: only uses theirs; off: neither, nor pre-trained cost models."
        ),
    ] = WRITE
    library: Annotated[
        bool,
        Field(
            description="Stores the compiled and checked model, a shared library, with the schedules. "
            "Off: schedules alone."
        ),
    ] = True
    measurer: Annotated[
        Name,
        Field(
            description="What builds and times candidates: tvm on a device, replay from a recording, "
            "simulated by a formula, detached by `mallorn batch` on a device without a worker."
        ),
    ] = "tvm"
    recording: Annotated[
        str,
        Field(
            max_length=4096,
            description="Recording to replay: a file of `mallorn record`, by its name below "
            "MALLORN_RECORDINGS or, on your own machine without API keys, by absolute path.",
        ),
    ] = ""
    simulated: Annotated[
        SimulatedOptions, Field(description="Settings of simulated: seed, device_sec, failure_rate.")
    ] = SimulatedOptions()
    round_size: Annotated[
        Annotated[int, Field(ge=1, le=LARGEST_ROUND)] | None,
        Field(description="Candidates per round; by default the planner decides."),
    ] = None
    task_trials: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(description="Largest number of trials per task; by default only the job's budget limits it."),
    ] = None
    only: Annotated[
        list[Annotated[Name, Field(min_length=1)]],
        Field(
            max_length=MOST_PATTERNS,
            description="Tune only tasks whose names match one of these patterns, such as conv2d*; the "
            "others keep known schedules.",
        ),
    ] = []
    build_timeout_sec: Annotated[
        float, Field(gt=0, le=600, description="Time limit of a build, in seconds.")
    ] = 30.0
    run_timeout_sec: Annotated[
        float, Field(gt=0, le=600, description="Time limit of a run on the device, in seconds.")
    ] = 10.0
    evaluator: Annotated[
        EvaluatorOptions,
        Field(description="How a candidate is timed: number, repeat, min_repeat_ms, flush_l2."),
    ] = EvaluatorOptions()
    input_shapes: Annotated[
        dict[Name, Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=MOST_AXES)]],
        Field(max_length=MOST_NAMES, description="Shapes of the inputs with free dimensions."),
    ] = {}
    dynamic: Annotated[
        dict[Name, SizeRange],
        Field(
            max_length=MOST_NAMES,
            description="Tunes for a range of sizes of each free dimension, smallest and largest. One that "
            "may be 0, such as the length of a cache, is computed at its actual size.",
        ),
    ] = {}

    @property
    def is_detached(self) -> bool:
        """Return whether candidates travel in files to a device no worker reaches."""
        return self.measurer == DETACHED and self.mode != ZERO_SHOT

    @property
    def uses_builder(self) -> bool:
        """Return whether TVM builds the candidates, so that times depend on the builder."""
        return self.measurer in ON_DEVICES

    @property
    def needs_measurements(self) -> bool:
        """Return whether the job measures candidates, not only reuses known results."""
        return self.mode == SEARCH

    def with_target_defaults(self, target: Target) -> Self:
        """Return the options with the defaults of the target's hardware, except where the
        user chose a value."""
        defaults = {} if (hardware := target.measured_by) is None else hardware.default_options
        changes: dict[str, object] = {
            name: value for name, value in defaults.items() if name not in self.model_fields_set
        }
        repeat_ms = None if hardware is None else hardware.min_repeat_ms
        if repeat_ms is not None and "min_repeat_ms" not in self.evaluator.model_fields_set:
            changes["evaluator"] = self.evaluator.model_copy(update={"min_repeat_ms": repeat_ms})
        return self.model_copy(update=changes)

    def timing(self, target: Target) -> dict[str, object]:
        """Return how candidates are timed, as a measuring context names it.

        Times compare only if repeats, stopping rule, cache state and launches are equal.
        """
        hardware = target.measured_by or TargetKind
        cache = hardware.cache_states[self.evaluator.flush_l2]
        timing = self.evaluator.model_dump(exclude={"flush_l2"})
        return timing | {"stopping": self.stopping, "cache": cache} | dict(hardware.launch_facts)

    def timing_inside(self, target: Target, model: str, programs: int) -> dict[str, object]:
        """Return `timing` for kernels timed inside a model beside other programs."""
        hardware = target.measured_by or TargetKind
        return {**hardware.launch_facts, "cache": "model", "beside": programs, "model": model}


ONE_VERSION: Final = "install one version everywhere: docs/runbook.md, Upgrade"


class KeptOptions(JobOptions):
    """The options of a submitted job, as any version stored them.

    Validation ignores options that this version does not know, and replaces values that it
    cannot read by the default. A worker must call `check_all_readable` before it works on the job.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)
    _strange: tuple[str, ...] = PrivateAttr(())
    _unknown: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _read_ignoring_unknown(cls, body: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        problems: list[ErrorDetails] = []
        try:
            options = read(body)
        except ValidationError as error:
            valid_part, problems = deepcopy(body), error.errors()
            for problem in problems:
                _drop(valid_part, problem["loc"])
            options = read(valid_part)
        extra_places = [problem["loc"] for problem in problems if problem["type"] == "extra_forbidden"]
        unknown = {".".join(map(str, parts)) for parts in extra_places}
        if isinstance(body, dict):
            unknown |= body.keys() - cls.model_fields.keys() - RETIRED
        strange = {str(problem["loc"][0]) for problem in problems if problem["loc"] not in extra_places}
        options._strange, options._unknown = tuple(sorted(strange)), tuple(sorted(unknown))
        return options

    def check_all_readable(self) -> None:
        """Raise UnknownName if a worker of this version cannot read an option or its value."""
        if self._unknown:
            names = ", ".join(self._unknown)
            raise UnknownName(
                f"version {VERSION} does not know these options of this job: {names}; the job waits for "
                "a worker or coordinator of a newer version",
                hint=ONE_VERSION,
            )
        if self._strange:
            names = ", ".join(self._strange)
            raise UnknownName(
                f"version {VERSION} cannot read the job's {names}; the job waits for a newer version",
                hint=ONE_VERSION,
            )


def _drop(options: Any, path: Sequence[int | str]) -> None:
    """Remove the value at a path of keys; if that leads into a list, the whole list."""
    for key in path:
        if isinstance(options, dict) and isinstance(options.get(key), dict) and key != path[-1]:
            options = options[key]
        elif isinstance(options, dict):
            options.pop(key, None)
            return


def accepted_names(option: str) -> list[str]:
    """Return the names that a job option accepts; empty if it accepts other values."""
    annotation = JobOptions.model_fields[option].annotation
    names = get_args(annotation) if get_origin(annotation) is Literal else list_names(option)
    return list(names)
