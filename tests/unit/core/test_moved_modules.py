"""Modules that a user's own classes import under names of earlier versions."""

import subprocess
import sys
from importlib import import_module

import pytest

from mallorn.core.moved_modules import MOVED, new_name


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_same_module_and_warns(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(FutureWarning) as warned:
        found = import_module(old)
    assert f"{old} is {MOVED[old]} now" in map(str, (each.message for each in warned))
    assert found is import_module(MOVED[old])
    assert found.__name__ == MOVED[old]
    assert found.__spec__ is not None
    assert found.__spec__.name == MOVED[old]


def test_a_searcher_written_for_the_old_name_is_a_searcher() -> None:
    code = "from workers.search import base as a; from searchers import base as b; exit(a is not b)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_never_moved_has_no_new_name() -> None:
    assert new_name("workers.measure.measurer_interface") == ""
    assert new_name("workers.searching") == ""
    assert new_name("workers.search.algorithms.random") == "searchers.algorithms.random"
