"""Labels of jobs and filters of their list, over HTTP and by the Python client."""

import pytest

from mallorn import Client
from mallorn.core.api_keys import Scope
from mallorn.core.errors import InvalidRequest, NotFound
from tests.fixtures.coordinator import Coordinator, OwnedRows, Start

TARGET = {"kind": "llvm", "num-cores": 2}


def test_labels_are_set_at_submit_changed_later_and_listed_by(coordinator: Coordinator) -> None:
    with Client(coordinator.url) as client:
        model = coordinator.upload()
        labels = {"team": "vision", "nightly": ""}
        job = client.submit(model, target=TARGET, trials=1, name="net", labels=labels)
        other = client.submit(model, target=TARGET, trials=1)
        assert job.status.labels == labels
        assert [found.id for found in client.jobs(labels=["team=vision", "nightly"])] == [job.id]
        assert list(client.jobs(labels=["team"], name="mlp")) == []
        assert job.change_labels({"nightly": None, "team": "speech"}).labels == {"team": "speech"}
        assert [found.id for found in client.jobs(labels=["team=speech"])] == [job.id]
        assert client.job(job.id).status.labels == {"team": "speech"}
        assert [found.id for found in client.jobs(model=model[:8])] == [other.id, job.id]
        assert [found.id for found in client.jobs(["queued", "done"], name=other.id[:8])] == [other.id]
        assert list(client.jobs(created_before=job.status.created_at)) == []
        assert len(list(client.jobs(created_after=job.status.created_at))) == 2


@pytest.mark.parametrize(
    "labels",
    [{"": "x"}, {"-a": ""}, {"a b": ""}, {"k": "v" * 64}, {"k": "a\nb"}, {f"k{at}": "" for at in range(21)}],
)
def test_a_label_that_is_none_is_refused(coordinator: Coordinator, labels: dict[str, str]) -> None:
    assert coordinator.submit(labels=labels).status_code == 422
    job = coordinator.submit().json()["id"]
    answer = coordinator.http.patch(f"/jobs/{job}", json={"labels": labels})
    assert answer.status_code == 422
    assert coordinator.http.get(f"/jobs/{job}").json()["labels"] == {}


def test_only_an_admin_lists_another_owners_jobs_and_never_by_what_is_private(start: Start) -> None:
    coordinator = start()
    job_id = OwnedRows(coordinator.database, "ada").job_id
    keys = {owner: coordinator.new_key(owner, *scopes).key for owner, scopes in (
        ("ada", (Scope.READ, Scope.SUBMIT)), ("bob", (Scope.READ,)), ("root", (Scope.ADMIN,))
    )}  # fmt: skip
    with Client(coordinator.url, keys["ada"]) as ada:
        model, options = coordinator.ask(keys["ada"], "PUT", "/models", content=b"x").json()["id"], True
        private = ada.submit(model, target=TARGET, trials=1, name="secret", private=options, labels={"a": ""})
        assert [job.id for job in ada.jobs(owner="ada", name="secret")] == [private.id]
    assert coordinator.ask(keys["bob"], "GET", "/jobs", params={"owner": "ada"}).status_code == 403
    with Client(coordinator.url, keys["root"]) as root:
        assert {job.id for job in root.jobs(owner="ada")} == {job_id, private.id}
        assert [job.status.name for job in root.jobs(owner="ada", name="mlp")] == ["mlp"]
        for filters in ({"name": "secret"}, {"labels": ["a"]}, {"model": model}):
            assert list(root.jobs(all_owners=True, **filters)) == []
        with pytest.raises(NotFound):
            root.job(job_id).change_labels({"a": ""})


def test_a_malformed_filter_is_refused(coordinator: Coordinator) -> None:
    with Client(coordinator.url) as client:
        for filters in ({"labels": ["-a"]}, {"model": "resnet"}, {"labels": ["a"] * 21}):
            with pytest.raises(InvalidRequest):
                list(client.jobs(**filters))
