"""Workers report which cost models they can run, and import no learner to find that out."""

import subprocess
import sys
from typing import Final

from mallorn.core.installation import RESEARCH
from mallorn.core.registry import libraries_of, list_runnable_cost_models

OPTIONAL: Final = ("flaml", "torch")  # of mallorn-research


def test_a_worker_begins_without_them() -> None:
    libraries = (*OPTIONAL, "lightgbm", "sklearn", "xgboost")
    asked = [sys.executable, "-c", "import sys, mallorn.workers.celery_tasks; print([*sys.modules])"]
    imported = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert [library for library in libraries if f"'{library}'" in imported] == []


def test_models_of_research_need_that_package() -> None:
    assert libraries_of("moa") == {"torch", RESEARCH}
    assert libraries_of("static") == {RESEARCH}
    assert libraries_of("draft") == frozenset()
    assert libraries_of("my_package:Mine") == frozenset()


def test_what_runs_is_what_has_its_libraries() -> None:
    assert {"lightgbm", "draft", "xgboost", "random"} <= set(list_runnable_cost_models())


def test_nothing_is_imported_to_tell() -> None:
    code = (
        "import sys; from mallorn.core.registry import list_runnable_cost_models as list_all; "
        "list_all(); print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {"torch", "flaml", "xgboost", "lightgbm", "sklearn"}.isdisjoint(told.split())
