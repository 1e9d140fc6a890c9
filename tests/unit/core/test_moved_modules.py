"""Modules that a user's own classes import under names of earlier versions."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from mallorn.core.installation import IMPORT_ROOT
from mallorn.core.moved_modules import MOVED, ROOMS, new_name


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_same_module_and_warns(old: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ROOMS]:
        sys.modules.pop(name)
    with pytest.warns(FutureWarning) as warned:
        found = import_module(old)
    assert f"{old} is {MOVED[old]} now" in map(str, (each.message for each in warned))
    assert found is import_module(MOVED[old])
    assert found.__name__ == MOVED[old]
    assert found.__spec__ is not None
    assert found.__spec__.name == MOVED[old]


def test_a_searcher_written_for_the_old_name_is_a_searcher() -> None:
    code = "import mallorn.workers; from searchers import base as a; from mallorn.searchers import base as b"
    code += "; exit(a is not b)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_never_moved_has_no_new_name() -> None:
    assert new_name("mallorn.workers.measure.measurer_interface") == ""
    assert new_name("workshop") == ""


def test_a_package_that_became_a_part_of_mallorn_has_a_new_name() -> None:
    assert new_name("workers") == "mallorn.workers"
    assert new_name("workers.searching") == "mallorn.workers.searching"
    assert new_name("workers.search.algorithms.random") == "mallorn.searchers.algorithms.random"


def test_a_users_own_package_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "__init__.py").write_text("OWN = True\n")
    code = "import mallorn.workers, workers; exit(not workers.OWN)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(IMPORT_ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
