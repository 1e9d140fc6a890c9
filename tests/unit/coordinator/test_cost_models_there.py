"""A cost model that no live worker can run is refused where a job is submitted, with what installs it."""

import pytest
from sqlalchemy import update

from mallorn.core.installation import RESEARCH, pip_install_command
from mallorn.core.registry import libraries_of, list_names
from mallorn.core.values.fleet import WorkerInfo
from mallorn.db.repositories.workers import Workers
from mallorn.db.tables import Worker
from mallorn.services.coordinator.jobs.submit import missing_libraries
from tests.fixtures.coordinator import Coordinator, Start

LACKS_TORCH = [name for name in list_names("cost_model") if "torch" not in libraries_of(name)]
BARE = WorkerInfo(cost_models=["draft", "random", "static"])


def see_worker(coordinator: Coordinator, name: str, info: WorkerInfo, seen_sec_ago: float = 0.0) -> None:
    with coordinator.database.transaction() as session:
        Workers(session).record_seen(name, "host", info)
        late = update(Worker).where(Worker.id == name).values(last_seen=Worker.last_seen - seen_sec_ago)
        session.execute(late)


def test_it_is_refused_with_what_is_missing_where_and_the_line_that_installs_it(
    coordinator: Coordinator,
) -> None:
    see_worker(coordinator, "big-box-17-99", WorkerInfo(cost_models=LACKS_TORCH))
    answer = coordinator.submit(options={"cost_model": "gnn"})
    assert (answer.status_code, answer.json()["error"]) == (501, "MissingPackage")
    said = answer.json()
    assert said["detail"] == "the cost model gnn needs torch, which no worker on big-box has"
    assert said["hint"].startswith(pip_install_command("torch", RESEARCH))
    assert coordinator.http.get("/jobs").json()["items"] == []
    assert coordinator.submit(options={"cost_model": "xgboost"}).status_code == 201


def test_one_worker_that_can_is_enough(coordinator: Coordinator) -> None:
    see_worker(coordinator, "a-1-1", BARE)
    assert coordinator.submit(options={"cost_model": "tlp"}).status_code == 501
    see_worker(coordinator, "b-1-1", WorkerInfo(cost_models=["tlp"]))
    assert coordinator.submit(options={"cost_model": "tlp"}).status_code == 201


def test_a_request_that_made_a_job_before_finds_it_whoever_works_now(coordinator: Coordinator) -> None:
    first = coordinator.submit({"Idempotency-Key": "one"}, options={"cost_model": "tlp"})
    see_worker(coordinator, "a-1-1", BARE)
    again = coordinator.submit({"Idempotency-Key": "one"}, options={"cost_model": "tlp"})
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


@pytest.mark.parametrize(
    ("info", "seen_sec_ago"),
    [
        (BARE, 60.0),  # silent
        (BARE.model_copy(update={"stopped": True}), 0.0),
        (BARE.model_copy(update={"can_tune": False}), 0.0),
        (WorkerInfo(), 0.0),  # of an older version
    ],
)
def test_a_job_waits_where_nobody_is_known_to_lack_it(
    coordinator: Coordinator, info: WorkerInfo, seen_sec_ago: float
) -> None:
    see_worker(coordinator, "a-1-1", info, seen_sec_ago)
    assert coordinator.submit(options={"cost_model": "automl"}).status_code == 201


def test_a_model_of_ones_own_is_taken_unseen(start: Start) -> None:
    coordinator = start(plugins=["my_package:*"])
    see_worker(coordinator, "a-1-1", BARE)
    assert coordinator.submit(options={"cost_model": "my_package:Mine"}).status_code == 201


@pytest.mark.parametrize(
    ("name", "workers", "missing"),
    [
        ("gnn", [], []),
        ("draft", [["random"]], []),
        ("moa", [["draft"]], ["mallorn-research", "torch"]),
        ("moa", [["draft", "forest"]], ["torch"]),
        ("automl", [["lightgbm", "draft", "tlp"]], ["flaml"]),
        ("forest", [["xgboost", "draft"]], ["mallorn-research"]),
        ("gnn", [["draft"], None], []),
    ],
)
def test_what_is_missing(name: str, workers: list[list[str] | None], missing: list[str]) -> None:
    assert missing_libraries(name, [WorkerInfo(cost_models=each) for each in workers]) == missing


def test_a_searcher_of_research_needs_a_worker_with_that_package(coordinator: Coordinator) -> None:
    see_worker(coordinator, "a-1-1", WorkerInfo(cost_models=["draft", "xgboost"]))
    for options in ({"search": "ppo"}, {"sampler": "diverse"}, {"measurer": "simulated"}):
        answer = coordinator.submit(options=options)
        assert answer.status_code == 501, options
        assert answer.json()["hint"].startswith(pip_install_command("", RESEARCH))
    see_worker(coordinator, "b-1-1", BARE)
    assert coordinator.submit(options={"search": "ppo"}).status_code == 201
