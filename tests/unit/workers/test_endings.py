"""What an error does to the work that it ended, rounds and stages alike where nothing is said."""

import pytest

from mallorn.core.errors import (
    Conflict,
    HostFault,
    InvalidModel,
    LeaseLost,
    MallornError,
    NoDevice,
    PluginFailed,
    StorageFull,
    StoreAway,
    UnknownName,
    Unschedulable,
)
from mallorn.core.states import WorkKind
from workers.process.retry_rules import (
    CUT_SHORT,
    FAILED,
    GIVEN_BACK,
    GIVEN_UP,
    LATER,
    OTHER_HOST,
    TAKEN,
    TRIED_AGAIN,
    RetryRule,
    retry_rule_for,
)
from workers.subprocesses.errors import ChildCrashed, ChildFailed, ChildKilled, ChildOutOfMemory, ChildTimeout
from workers.subprocesses.shutdown import ShutdownRequested


@pytest.mark.parametrize("kind", [WorkKind.ROUND, WorkKind.IMPORT, WorkKind.FINISH])
@pytest.mark.parametrize(
    ("error", "then"),
    [
        (ShutdownRequested(), GIVEN_BACK),
        (LeaseLost(), TAKEN),
        (NoDevice(), GIVEN_BACK),
        (HostFault(), OTHER_HOST),
        (StorageFull(), GIVEN_BACK),
        (StoreAway(), LATER),
        (UnknownName(), GIVEN_BACK),
        (ChildCrashed("it died"), TRIED_AGAIN),
        (ChildKilled("it was killed"), CUT_SHORT),
        (ChildOutOfMemory("it took too much"), TRIED_AGAIN),
        (ChildTimeout(), TRIED_AGAIN),
        (Unschedulable(), GIVEN_UP),
        (InvalidModel(), FAILED),
        (Conflict(), FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MallornError) else "",
)
def test_the_same_error_ends_all_work_alike(error: MallornError, then: RetryRule, kind: WorkKind) -> None:
    assert retry_rule_for(error, kind) is then


@pytest.mark.parametrize("seam", ["stopping", "measurer", "policy", "families"])
def test_a_part_that_itself_raises_and_that_nothing_stands_in_for_fails_its_job(seam: str) -> None:
    assert retry_rule_for(PluginFailed(seam=seam), WorkKind.ROUND) is FAILED


@pytest.mark.parametrize("error", [ChildFailed("ValueError", "no"), PluginFailed(seam="search")])
def test_what_failed_for_one_round_may_do_for_the_next_worker(error: MallornError) -> None:
    assert retry_rule_for(error, WorkKind.ROUND) is TRIED_AGAIN
    assert retry_rule_for(error, WorkKind.IMPORT) is FAILED


def test_a_stopping_worker_has_nothing_to_tell_the_job() -> None:
    assert ShutdownRequested().reason == ""
    assert NoDevice().reason
