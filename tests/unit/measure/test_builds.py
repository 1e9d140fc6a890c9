"""What comes out of the builders: libraries, or results that say what went wrong."""

import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from mallorn.core.errors import HostFault, MallornError, StorageFull
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.trial import Trial
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.interfaces.candidate_compiler import Library
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.measure.build_candidates import Builds, BuiltCandidate, choose_builder
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult, Program
from mallorn.workers.subprocesses.errors import (
    ChildCrashed,
    ChildFailed,
    ChildKilled,
    ChildNotStarted,
    ChildOutOfMemory,
    ChildStarved,
    ChildTimeout,
)
from mallorn.workers.subprocesses.pending_call import Call
from mallorn.workers.subprocesses.process_pool import ChildPool, Finished

ARGS = (Tensor("TENSOR", "int8", (4,)),)


class Pool:
    """Two builders that end a task when they are told how."""

    def __init__(self) -> None:
        self.tasks: dict[Hashable, Mapping[str, Any]] = {}
        self.places: dict[Hashable, int] = {}
        self.ends: list[Finished[Library]] = []
        self.suspended = False

    @property
    def tags(self) -> list[Hashable]:
        return list(self.tasks)

    @property
    def size(self) -> int:
        return 2

    @property
    def idle(self) -> list[int]:
        return [place for place in range(2) if place not in self.places.values()]

    def submit(self, call: Call[Library], tag: Hashable, place: int | None = None) -> bool:
        assert (call.method, call.limit_sec) == ("build", 5.0)
        self.tasks[tag] = json.loads(call.params)
        self.places[tag] = self.idle[0] if place is None else place
        return True

    def end(self, tag: Hashable, error: MallornError | None = None) -> None:
        del self.tasks[tag], self.places[tag]
        self.ends.append(Finished(tag, error or Library(3.0, 10, ARGS)))

    def poll(self, timeout_sec: float) -> list[Finished[Library]]:
        ends, self.ends = self.ends, []
        return ends

    def cancel(self) -> None:
        self.tasks.clear()
        self.places.clear()

    def suspend(self) -> None:
        self.suspended = True

    def resume(self) -> None:
        self.suspended = False


def builds_of(pool: Pool, count: int = 3) -> Builds:
    slots = [MeasureInput(i, Candidate("s", (i, 2)), Sketch("s", "the trace", ())) for i in range(count)]
    program = Program("key", "the program", Arguments(()), 1.0)
    return Builds(cast("ChildPool[Library]", pool), slots, program, Target("t"), Path("/room"), 5.0)


def test_every_free_builder_gets_a_candidate_and_a_freed_one_the_next() -> None:
    pool = Pool()
    builds = builds_of(pool)
    assert builds.poll(0) == []
    assert pool.tags == [0, 1]
    pool.end(0)
    assert [type(end) for end in builds.poll(0)] == [BuiltCandidate]
    assert pool.tags == [1, 2]


def test_a_builder_goes_on_with_what_it_found_valid_before_it_helps_others() -> None:
    pool = Pool()
    builds = builds_of(pool, 8)
    homes = {slot: choose_builder((slot, 2), pool.size) for slot in range(8)}
    own = [slot for slot in homes if homes[slot] == 0]
    others = [slot for slot in homes if homes[slot] == 1]
    assert own
    assert others
    builds.assign_candidates()
    for slot in [*own[1:], *others[1:]]:  # the other builder is still at its first
        pool.end(next(tag for tag in pool.tags if pool.places[tag] == 0))
        builds.poll(0)
        assert pool.places[slot] == 0


def test_a_builder_is_told_all_it_needs() -> None:
    pool = Pool()
    builds_of(pool).assign_candidates()
    assert pool.tasks[1] == {
        "tir": "the program",
        "target": "t",
        "trace": "the trace",
        "decisions": [1, 2],
        "out_path": "/room/1.so",
        "any_size": False,
    }


@pytest.mark.parametrize("error", [HostFault("no linker here"), StorageFull()])
def test_what_the_host_lacks_is_no_candidates_fault(error: MallornError) -> None:
    pool = Pool()
    builds = builds_of(pool)
    builds.assign_candidates()
    pool.end(0, error)
    with pytest.raises(type(error)):
        builds.poll(0)


def test_a_library_comes_with_the_arguments_that_the_schedule_wants() -> None:
    pool = Pool()
    builds = builds_of(pool)
    builds.assign_candidates()
    pool.end(1)
    (ready,) = builds.poll(0)
    assert isinstance(ready, BuiltCandidate)
    assert (ready.input.slot, ready.artifact, ready.build_ms) == (1, Path("/room/1.so"), 3.0)
    assert ready.args == ARGS


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ChildTimeout("builder took longer than 5 s"), Outcome.BUILD_TIMEOUT),
        (ChildCrashed("builder died of SIGSEGV"), Outcome.BUILD_ERROR),
        (ChildFailed("InternalError", "check failed"), Outcome.BUILD_ERROR),
    ],
)
def test_a_failed_build_is_a_result(error: MallornError, outcome: Outcome) -> None:
    pool = Pool()
    builds = builds_of(pool)
    builds.assign_candidates()
    pool.end(0, error)
    assert builds.poll(0) == [MeasureResult(0, Trial(Candidate("s", (0, 2)), outcome, error=error.message))]


def test_each_of_several_builds_at_once_has_its_own_limit_and_its_own_error() -> None:
    pool = Pool()
    builds = builds_of(pool)
    builds.assign_candidates()
    pool.end(1, ChildTimeout("builder took longer than 5 s"))
    pool.end(0, ChildFailed("InternalError", "check failed"))
    (late, wrong), _ = builds.poll(0), builds.poll(0)
    assert isinstance(late, MeasureResult)
    assert isinstance(wrong, MeasureResult)
    assert (late.slot, late.trial.outcome) == (1, Outcome.BUILD_TIMEOUT)
    assert (wrong.slot, wrong.trial.outcome) == (0, Outcome.BUILD_ERROR)
    assert late.trial.error == "builder took longer than 5 s"
    assert "check failed" in wrong.trial.error
    assert pool.tags == [2]  # and was given the limit of the job, as each was


HOSTS_DOING = [
    ChildKilled("builder died of SIGKILL"),
    ChildOutOfMemory("builder took more memory than there is, and the kernel ended it"),
    ChildStarved("builder took longer than 5 s; it mostly waited for a processor"),
]


@pytest.mark.parametrize("error", [*HOSTS_DOING, ChildNotStarted("builder did not start")], ids=repr)
def test_what_the_host_ended_is_built_once_more_alone(error: MallornError) -> None:
    pool = Pool()
    builds = builds_of(pool)
    builds.assign_candidates()
    pool.end(0, error)
    assert builds.poll(0) == []
    assert pool.tags == [1, 2], "after all others"
    pool.end(1)
    pool.end(2)
    assert len(builds.poll(0)) == 2
    assert builds.has_unfinished
    builds.assign_candidates()
    assert pool.tags == [0]
    pool.end(0)
    (ready,) = builds.poll(0)
    assert isinstance(ready, BuiltCandidate)
    assert not builds.has_unfinished


def ended_twice(error: MallornError) -> list[BuiltCandidate | MeasureResult]:
    pool = Pool()
    builds = builds_of(pool, 1)
    for _ in range(2):
        builds.assign_candidates()
        pool.end(0, error)
        found = builds.poll(0)
    assert not builds.has_unfinished
    return found


@pytest.mark.parametrize("error", HOSTS_DOING, ids=repr)
def test_what_the_host_ended_twice_is_lost_and_no_failure_of_the_candidate(error: MallornError) -> None:
    lost = Trial(Candidate("s", (0, 2)), Outcome.WORKER_LOST, error=error.message)
    assert ended_twice(error) == [MeasureResult(0, lost)]


def test_a_host_on_which_builders_do_not_start_gives_its_round_to_another() -> None:
    with pytest.raises(HostFault, match="did not start"):
        ended_twice(ChildNotStarted("builder did not start"))


def test_a_full_disk_is_not_the_candidates_fault() -> None:
    pool = Pool()
    builds = builds_of(pool)
    builds.assign_candidates()
    pool.end(0, StorageFull())
    with pytest.raises(StorageFull):
        builds.poll(0)


def test_an_aborted_round_leaves_no_task_and_no_sleeper() -> None:
    pool = Pool()
    builds = builds_of(pool)
    builds.assign_candidates()
    builds.pause()
    builds.abort()
    assert not builds.has_unfinished
    assert not pool.suspended
