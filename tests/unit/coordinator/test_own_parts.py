"""What a user may name that Mallorn does not know: on whose list, and what a coordinator says without."""

from importlib.metadata import EntryPoint

import pytest

from mallorn.core import check_plugin_classes, registry
from mallorn.core.api_keys import hash_secret
from mallorn.core.check_option_kwargs import check_options
from mallorn.core.check_plugin_classes import ANY, check_allowed_classes
from mallorn.core.errors import ClassRefused, InvalidRequest, PluginFailed
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import check_name, resolve
from mallorn.searchers.algorithms.simulated_annealing import Annealing
from mallorn.services.coordinator.web.audit_log import MOST_PER_MINUTE
from tests.fixtures.coordinator import Coordinator, Start
from tests.unit.coordinator.test_audit import told

STRANGERS = ["subprocess:Popen", "os:system", "builtins:eval", "antigravity:x", "unittest.__main__:x"]
SEAMS = ["search", "cost_model", "sampler", "stopping", "policy", "families", "measurer"]


class Annealed(Annealing):
    """Of an installed package."""


@pytest.mark.parametrize("seam", ["search", "cost_model", "sampler", "stopping", "policy", "families"])
def test_the_form_of_a_class_of_ones_own_is_all_that_a_client_looks_at(seam: str) -> None:
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
    entry = EntryPoint("annealed", f"{__name__}:Annealed", "mallorn.search")

    def installed(seam: str) -> dict[str, str]:
        return {entry.name: entry.value} if entry.group == f"mallorn.{seam}" else {}

    monkeypatch.setattr(registry, "find_plugins", installed)
    monkeypatch.setattr(check_plugin_classes, "find_plugins", installed)
    check_options(JobOptions(search="annealed"))
    check_allowed_classes(JobOptions(search="annealed"), [])
    check_allowed_classes(JobOptions(search=entry.value), [])
    with pytest.raises(ClassRefused, match="task policy annealed"):
        check_allowed_classes(JobOptions(policy="annealed"), [])
    assert resolve("search", "annealed") is Annealed


@pytest.mark.parametrize("listed", ["mine:Mine", "mine:*", ANY])
def test_an_operator_lists_classes_modules_or_all(listed: str) -> None:
    check_allowed_classes(JobOptions(search="mine:Mine"), ["other:Class", listed])


@pytest.mark.parametrize("listed", ["mine:Mine2", "mine.more:*", "min:*", "mine"])
def test_what_is_listed_nearly_is_not_listed(listed: str) -> None:
    with pytest.raises(ClassRefused):
        check_allowed_classes(JobOptions(search="mine:Mine"), [listed])


def test_one_of_ours_is_named_by_its_name_alone() -> None:
    with pytest.raises(InvalidRequest, match="has a short name") as caught:
        check_name("measurer", "mallorn_research.simulated_device.measurer:SimulatedMeasurer")
    assert caught.value.hint == "known: simulated"


@pytest.mark.parametrize("name", ["unittest.__main__:x", "no_such_module:Mine"])
def test_a_module_that_cannot_be_imported_or_leaves_is_its_own_failure(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("sys.argv", ["mallorn", "--no-such-option"])
    with pytest.raises(PluginFailed, match="cannot be imported"):
        resolve("policy", name)


KEY = "k" * 40


@pytest.fixture
def guarded(start: Start) -> Coordinator:
    coordinator = start(api_keys={"ada": hash_secret(KEY)}, plugins=["mine:*", ANY])
    coordinator.http.headers["Authorization"] = f"Bearer {KEY}"
    return coordinator


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_key_names_no_class_that_is_on_no_list_and_the_audit_has_it(guarded: Coordinator) -> None:
    model = guarded.upload()
    for seam in SEAMS:
        for name in STRANGERS:
            answer = guarded.submit(model_id=model, options={seam: name})
            assert answer.status_code == 422, answer.text
            error = answer.json()
            assert error["error"] == "ClassRefused"
            assert name in error["detail"]
            assert "mine:*" in error["hint"]
            assert {*registry.list_names(seam)} <= set(error["hint"].replace(",", "").split())
    assert guarded.submit(model_id=model, options={"recipe": "os:system"}).status_code == 422
    refused = [entry for entry in told(guarded, KEY) if entry == ("ada", "POST /api/v1/jobs", 422)]
    assert len(refused) == MOST_PER_MINUTE[True]
    assert guarded.submit(model_id=model, options={"search": "mine:Mine"}).status_code == 201


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_without_a_key_anything_is_taken_where_the_machine_is_ones_own_and_nowhere_else(
    start: Start,
) -> None:
    mine = {"search": "mine:Mine"}
    assert start(plugins=[ANY]).submit(options=mine).status_code == 201
    assert start().submit(options=mine).status_code == 422
