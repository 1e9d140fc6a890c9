"""What a user may name that Mallorn does not know: only its form is looked at where a job is submitted."""

from importlib.metadata import EntryPoint

import pytest

from mallorn.core import names
from mallorn.core.asked import check_options
from mallorn.core.errors import InvalidRequest
from mallorn.core.names import check_name, resolve
from mallorn.core.options import JobOptions


@pytest.mark.parametrize("seam", ["search", "cost_model", "sampler", "stopping", "policy", "families"])
def test_a_class_of_ones_own_is_taken_unseen(seam: str) -> None:
    check_options(JobOptions.model_validate({seam: "my_package.mine:Mine"}))


@pytest.mark.parametrize("name", ["mine", "mine:", ":Mine", "my-package:Mine", "a:b:c", "../a:B", "a b:C"])
def test_what_names_no_class_is_refused_with_what_would(name: str) -> None:
    with pytest.raises(InvalidRequest, match="unknown search") as caught:
        check_name("search", name)
    assert "MODULE:CLASS of your own" in caught.value.hint


def test_a_recipe_is_not_a_class_of_ones_own() -> None:
    with pytest.raises(InvalidRequest, match="unknown recipe"):
        check_name("recipe", "my_package:MINE")


def test_an_installed_package_may_give_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("annealed", "workers.search.algorithms.sa:Annealing", "mallorn.search")

    def installed(group: str, name: str) -> list[EntryPoint]:
        return [entry] if (group, name) == (entry.group, entry.name) else []

    monkeypatch.setattr(names, "entry_points", installed)
    check_options(JobOptions(search="annealed"))
    assert resolve("search", "annealed") is resolve("search", "sa")
