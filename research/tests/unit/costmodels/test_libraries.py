"""A worker without an optional library runs all cost models but those that need it."""

import subprocess
import sys
from typing import Final

import pytest

from mallorn.core.registry import libraries_of, list_names, list_runnable_cost_models

OPTIONAL: Final = ("flaml", "torch")  # of mallorn-research
LACKING: Final = """
import sys
class Missing:
    def find_spec(name, path=None, target=None):
        if name in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing)
from mallorn.costmodels.testing import easy_data
from mallorn.core.errors import MissingPackage
from mallorn.core.registry import list_names, resolve
for name in list_names("cost_model"):
    try:
        model = resolve("cost_model", name)()
        model.fit(*easy_data(100, seed=0, view=model.view), seed=0)
    except (ModuleNotFoundError, MissingPackage) as error:
        print(name, str(error).partition("\\n")[0])
"""


def failures_without(*libraries: str) -> dict[str, str]:
    asked = [sys.executable, "-c", LACKING, *libraries]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.split(" ", 1) for line in told)


def test_without_an_optional_library_these_models_do_not_run_and_all_others_do() -> None:
    failed = failures_without(*OPTIONAL)
    assert set(failed) == {name for name in list_names("cost_model") if {*OPTIONAL} & libraries_of(name)}
    for name, why in failed.items():
        assert any(library in why for library in libraries_of(name)), why


@pytest.mark.parametrize(("module", "gone"), [("flaml", "automl"), ("mallorn_research", "forest")])
def test_what_runs_is_what_has_its_libraries(monkeypatch: pytest.MonkeyPatch, module: str, gone: str) -> None:
    assert gone in list_runnable_cost_models()
    monkeypatch.setitem(sys.modules, module, None)
    assert gone not in list_runnable_cost_models()
    assert {"lightgbm", "draft", "xgboost", "random"} <= set(list_runnable_cost_models())
