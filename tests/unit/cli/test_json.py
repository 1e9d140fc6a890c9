"""With --json a command says what the API says, to the last key."""

import json

import pytest

from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.workers import Workers
from tests.fixtures.answers import mallorn
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.decision_log import FIRST_PASS, looked_ahead, run_round
from tests.fixtures.schedules import promote

pytestmark = pytest.mark.usefixtures("named_coordinator")


@pytest.fixture
def filled(owned: OwnedRows) -> OwnedRows:
    """Something of every kind that is listed."""
    run_round(owned, "w0", [30.0, 40.0], FIRST_PASS)
    run_round(owned, "w1", [1200.0, None], looked_ahead(1080.0, 1210.0))
    promote(owned, "w0", 30.0)
    metrics = {"groups": 2, "training_rows": 8, "splits": {"by-task": {"pairwise": 0.5, "rmse": None}}}
    new = NewCostModel("operator:matmul", owned.target_id, "xgboost", 8, 8, metrics, b"model")
    device = SeenDevice("rack-7", owned.target_id, "h", "class", 2, "0.27.0", {"cores": 2, "busy": True})
    owned.write(lambda session: CostModels(session).add(new).id)
    with owned.database.transaction() as session:
        Devices(session).record_seen(device)
        Workers(session).record_seen("host:1:2", "h", {"pid": 7})
    return owned


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["jobs"], "/jobs"),
        (["jobs", "tasks"], "/jobs/newest/tasks"),
        (["dataset", "records"], "/records"),
        (["models"], "/models"),
        (["devices"], "/devices"),
        (["workers"], "/workers"),
        (["costmodels", "list"], "/costmodels"),
        (["schedules"], "/schedules"),
    ],
)
def test_a_list_is_the_apis(coordinator: Coordinator, filled: OwnedRows, words: list[str], path: str) -> None:
    said = mallorn(*words, "--json")
    assert said.exit_code == 0, said.stderr
    told = coordinator.http.get(path.replace("newest", filled.job_id)).json()["items"]
    assert told
    assert [list(row) for row in told] == [list(row) for row in json.loads(said.stdout)]
    assert _without_age(json.loads(said.stdout)) == _without_age(told)


def _without_age(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Seconds since something was seen go by between two answers."""
    return [{key: value for key, value in row.items() if key != "silent_sec"} for row in rows]


def test_one_job_and_the_dataset_are_the_apis(coordinator: Coordinator, filled: OwnedRows) -> None:
    for words, path in (["show"], f"/jobs/{filled.job_id}"), (["dataset", "stats"], "/dataset/stats"):
        url = [] if words == ["show"] else ["--url", coordinator.url]
        said = mallorn(*words, *url, "--json")
        assert json.loads(said.stdout) == coordinator.http.get(path).json()
