"""Which cost models run here is told without importing what they need."""

import subprocess
import sys
from typing import Final

import pytest

from mallorn.core.registry import (
    LIBRARIES,
    PARTS,
    REGISTRY,
    RESEARCH,
    find_pip_extras,
    libraries_of,
    list_runnable_cost_models,
)
from mallorn.research.costmodels.best_of_models import LEARNERS, PRIOR

LACKING: Final = """
import sys
for library in sys.argv[1:]:
    sys.modules[library] = None
from mallorn.costmodels.testing import easy_data
from mallorn.core.errors import MissingPackage
from mallorn.core.registry import REGISTRY, resolve
for name in REGISTRY["cost_model"]:
    try:
        model = resolve("cost_model", name)()
        model.fit(*easy_data(100, seed=0, view=model.view), seed=0)
    except (ModuleNotFoundError, MissingPackage) as error:
        print(name, str(error).partition("\\n")[0])
"""


def test_without_their_libraries_these_models_do_not_run_and_all_others_do() -> None:
    libraries = sorted(frozenset().union(*LIBRARIES.values()))
    asked = [sys.executable, "-c", LACKING, *libraries]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    failed = dict(line.split(" ", 1) for line in told)
    assert set(failed) == {name for name in REGISTRY["cost_model"] if libraries_of(name) - {RESEARCH}}
    for name, why in failed.items():
        assert any(library in why for library in libraries_of(name)), why


def test_a_worker_begins_without_them() -> None:
    libraries = sorted(frozenset().union(*LIBRARIES.values()))
    asked = [sys.executable, "-c", "import sys, mallorn.workers.celery_tasks; print([*sys.modules])"]
    imported = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert [library for library in libraries if f"'{library}'" in imported] == []


def test_a_model_that_chooses_among_others_needs_what_they_need() -> None:
    assert PARTS["ensemble"] == (PRIOR, *LEARNERS)
    assert libraries_of("ensemble") == {"xgboost", "lightgbm", "sklearn", "threadpoolctl", RESEARCH}
    assert libraries_of("moa") == {"torch", RESEARCH}
    assert libraries_of("static") == {RESEARCH}
    assert libraries_of("draft") == frozenset()
    assert libraries_of("my_package:Mine") == frozenset()


def test_what_runs_is_what_has_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    gone = {"xgboost", "statements", "statements-rank", "residual", "ensemble"}
    assert gone.isdisjoint(list_runnable_cost_models())
    assert {"lightgbm", "forest", "draft", "random"} <= set(list_runnable_cost_models())


def test_nothing_is_imported_to_tell() -> None:
    code = (
        "import sys; from mallorn.core.registry import list_runnable_cost_models as list_all; "
        "list_all(); print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {"torch", "flaml", "xgboost", "lightgbm", "sklearn"}.isdisjoint(told.split())


def test_the_extras_are_those_of_the_project() -> None:
    assert find_pip_extras(["torch"]) == "research"
    assert find_pip_extras(["flaml", "lightgbm"]) == "research,worker"
