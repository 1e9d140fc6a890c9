"""Validates and builds a round's candidates; turns failures into results."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from mallorn.core.errors import HostFault, MallornError, StorageFull
from mallorn.core.outcomes import Outcome
from mallorn.core.redaction import redact
from mallorn.core.targets import Target
from mallorn.core.values.trial import Trial
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler, Candidates, Library
from mallorn.workers.interfaces.tensor_arguments import Tensor
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult, Program
from mallorn.workers.subprocesses.errors import HOSTS_DOING, ChildNotStarted, ChildTimeout
from mallorn.workers.subprocesses.pending_call import Call
from mallorn.workers.subprocesses.process_pool import ChildPool, Finished

POLL_SEC: Final = 1.0
A = TypeVar("A")
TEXT_LIMIT = 1000
HEAD_LIMIT = 400


def choose_builder(decisions: Sequence[int], builders: int) -> int:
    """Return the index of the builder that validates and builds a candidate."""
    return hash(tuple(decisions)) % builders


def validate_in_builders(
    builders: ChildPool[list[bool]], tir: str, target: str, candidates: Candidates
) -> list[bool]:
    """Return for each candidate whether it can be rebuilt. The pool must have no other
    tasks. Raises the errors of `CandidateCompiler.validate`."""
    call = partial(CandidateCompiler.validate.make_call, tir, target)
    return _ask_builders(builders, candidates, call)


def lower_in_builders(
    builders: ChildPool[list[bytes | None]], view: str, tir: str, target: str, candidates: Candidates
) -> list[bytes | None]:
    """Return each candidate's features as `CandidateCompiler.compute_lowered_features`
    does, each from the builder that validated it. The pool must have no other tasks."""
    call = partial(CandidateCompiler.compute_lowered_features.make_call, view, tir, target)
    return _ask_builders(builders, candidates, call)


def _ask_builders(
    builders: ChildPool[list[A]], candidates: Candidates, call: Callable[[Candidates], Call[list[A]]]
) -> list[A]:
    """Divide candidates among the builders, and return their answers in order."""
    shares: dict[int, list[int]] = defaultdict(list)
    for index, (_, decisions) in enumerate(candidates):
        shares[choose_builder(decisions, builders.size)].append(index)
    waiting = {place: call([candidates[index] for index in share]) for place, share in shares.items()}
    ends: dict[Hashable, list[A] | MallornError] = {}
    while waiting or builders.tags:  # wait for all tasks, so that a failure leaves none behind
        for place in [place for place, task in waiting.items() if builders.submit(task, place, place)]:
            del waiting[place]
        if not builders.tags:  # other rounds use these builders: any other one will do
            builders.wait_for_idle(POLL_SEC)
            place, task = next(iter(waiting.items()))
            if builders.submit(task, place):
                del waiting[place]
        ends |= {task.tag: task.end for task in builders.poll(POLL_SEC)}
    answers: dict[int, A] = {}
    for place, share in shares.items():
        end = ends[place]
        if isinstance(end, MallornError):
            raise end
        answers |= zip(share, end, strict=True)
    return [answers[index] for index in range(len(candidates))]


def shorten(text: str) -> str:
    """Return an error's beginning, which names the cause, and its end, without secrets."""
    text = text.strip()
    if len(text) <= TEXT_LIMIT:
        return redact(text)
    head = text[:HEAD_LIMIT].rstrip()
    tail = text[len(text) - (TEXT_LIMIT - HEAD_LIMIT - 5) :]
    return redact(f"{head}\n...\n{tail.partition(chr(10))[2] or tail}")


@dataclass(frozen=True, slots=True)
class BuiltCandidate:
    """A candidate whose library is ready to be timed."""

    input: MeasureInput
    artifact: Path
    args: tuple[Tensor, ...]  # the program's, with weights in the schedule's layout
    build_ms: float
    kernels: tuple[Mapping[str, int | str], ...] = ()  # as Library.kernels


@dataclass(eq=False)
class Builds:
    """Builds the candidates of one round; with `any_size`, libraries may be of any size."""

    builders: ChildPool[Library]
    inputs: Sequence[MeasureInput]
    program: Program
    target: Target
    folder: Path
    timeout_sec: float
    any_size: bool = False

    def __post_init__(self) -> None:
        self._waiting = deque(self.inputs)
        self._retries: deque[MeasureInput] = deque()  # to be built again, while nothing else is
        self._retried: set[int] = set()  # slots whose builder the host ended once
        self._input_of = {each.slot: each for each in self.inputs}

    @property
    def has_unfinished(self) -> bool:
        return bool(self._waiting or self._retries or self.builders.tags)

    def assign_candidates(self) -> None:
        """Give each idle builder a candidate, preferably one that it validated before.
        Candidates whose builder the host killed are built again at the end, one by one."""
        size = self.builders.size
        for place in self.builders.idle[: len(self._waiting)]:
            preferred = (s for s in self._waiting if choose_builder(s.candidate.decisions, size) == place)
            entry = next(preferred, self._waiting[0])
            if self._submit(entry, place):
                self._waiting.remove(entry)
        if self._retries and not self.builders.tags and self._submit(self._retries[0]):
            self._retries.popleft()

    def poll(self, timeout_sec: float) -> list[BuiltCandidate | MeasureResult]:
        """Return finished builds and failures; wait up to `timeout_sec` for the first."""
        self.assign_candidates()
        if self.has_unfinished and not self.builders.tags:  # other rounds use all builders
            self.builders.wait_for_idle(timeout_sec)
        calls = self.builders.poll(timeout_sec)
        self.assign_candidates()
        return [end for call in calls if (end := self._convert_finished_build(call)) is not None]

    def pause(self) -> None:
        """Suspend the builder processes, so that the device has the cores for itself."""
        self.builders.suspend()

    def go_on(self) -> None:
        self.builders.resume()

    def abort(self) -> None:
        """Stop the builds of this round; the builders stay usable."""
        self._waiting.clear()
        self._retries.clear()
        self.builders.cancel()
        self.builders.resume()

    def _submit(self, entry: MeasureInput, place: int | None = None) -> bool:
        call = CandidateCompiler.build.make_call(
            self.program.tir,
            self.target.text,
            entry.sketch.trace,
            entry.candidate.decisions,
            str(self._artifact(entry)),
            self.any_size,
        )
        return self.builders.submit(call.with_limit(self.timeout_sec), entry.slot, place)

    def _artifact(self, entry: MeasureInput) -> Path:
        return self.folder / f"{entry.slot}.so"

    def _convert_finished_build(self, call: Finished[Library]) -> BuiltCandidate | MeasureResult | None:
        """Return a finished build's result; None if the candidate will be built once more.
        Raises HostFault or StorageFull if the host caused the failure."""
        entry, end = self._input_of[int(str(call.tag))], call.end
        if isinstance(end, Library):
            return BuiltCandidate(entry, self._artifact(entry), end.args, end.build_ms, end.kernels)
        if isinstance(end, HostFault | StorageFull):
            raise end  # this host failed: no candidate is to blame
        if isinstance(end, HOSTS_DOING) and entry.slot not in self._retried:
            self._retried.add(entry.slot)
            self._retries.append(entry)
            return None
        if isinstance(end, ChildNotStarted):
            raise HostFault(end.message, hint="mallorn check") from end
        if isinstance(end, HOSTS_DOING):
            outcome = Outcome.WORKER_LOST
        else:
            outcome = Outcome.BUILD_TIMEOUT if isinstance(end, ChildTimeout) else Outcome.BUILD_ERROR
        return MeasureResult(entry.slot, Trial(entry.candidate, outcome, error=shorten(end.message)))
