"""A helper process that died says what its user may do about it."""

from signal import SIGKILL, SIGSEGV

import pytest

from mallorn.core.settings import Settings
from mallorn.workers.subprocesses.errors import (
    ChildCrashed,
    ChildFailed,
    ChildKilled,
    ChildOutOfMemory,
    ChildTimeout,
    suggest_next_step,
)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ChildKilled("graphs is gone", died_of=SIGKILL), "MALLORN_BUILDERS=1"),
        (ChildOutOfMemory("graphs is gone", died_of=SIGKILL), "more memory"),
        (ChildCrashed("graphs died of SIGABRT\nwhat():  std::bad_alloc"), "MALLORN_CHILD_MEMORY_BYTES=2048"),
        (ChildTimeout("graphs took longer than 600 s"), "MALLORN_IMPORT_TIMEOUT_SEC=1200"),
        (ChildFailed("KeyError", "x", hint="its own"), "its own"),
    ],
)
def test_what_is_known_to_help_is_said(error, words):
    assert words in suggest_next_step(error, Settings(child_memory_bytes=1024, import_timeout_sec=600))


def test_nothing_is_made_up_about_other_deaths():
    assert suggest_next_step(ChildCrashed("graphs died", died_of=SIGSEGV), Settings()) == ""
    assert suggest_next_step(ChildCrashed("its last words: a child died of SIGKILL"), Settings()) == ""
