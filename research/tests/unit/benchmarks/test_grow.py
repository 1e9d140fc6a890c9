"""A recording that grows: what is asked for, in which order, and what a second start leaves alone."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.grow import Network, by_name, drawn_networks, measure, passes
from mallorn.client.job import Job
from mallorn.core.states import JobState
from mallorn.core.values.dataset import UploadedModel
from mallorn.core.values.job import JobStatus


class Api:
    """Takes jobs, which are measured at once."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def upload(self, model: Path) -> UploadedModel:
        return UploadedModel(id=model.stem)

    def submit(self, model: str, *given: Any, **options: Any) -> "Answered":
        self.asked.append({"model": model, "name": given[4], "seed": given[3], **options})
        return Answered(JobState.DONE, given[4])


class Answered(Job):
    """A job that stays as it is."""

    def __init__(self, state: JobState, name: str = "") -> None:
        self.status = JobStatus(id="j", state=state, name=name)

    def refresh(self) -> JobStatus:
        if self.status.state is JobState.TUNING:
            self.status = self.status.model_copy(update={"state": JobState.DONE})
        return self.status


@pytest.fixture
def networks() -> list[Network]:
    return [Network(Path("mlp.onnx")), Network(Path("drawn-0-0.onnx"), ("*conv2d*",))]


def test_every_network_is_looked_at_before_one_is_looked_at_twice(networks: list[Network]) -> None:
    order = [(each.network.file.stem, each.search) for each in passes(networks, 3, 64, 0)]
    assert order == [
        ("mlp", "random"),
        ("drawn-0-0", "random"),
        ("mlp", "portfolio"),
        ("drawn-0-0", "portfolio"),
        ("mlp", "random"),
        ("drawn-0-0", "random"),
    ]


def test_a_pass_is_a_job_with_a_seed_of_its_own(networks: list[Network]) -> None:
    api = Api()
    for each in passes(networks, 2, 48, 7):
        assert measure(api, each, None) is not None  # type: ignore[arg-type]
    assert [job["seed"] for job in api.asked] == [8, 8, 9, 9]
    assert len({job["name"] for job in api.asked}) == 4
    assert {job["task_trials"] for job in api.asked} == {48}
    assert api.asked[1]["only"] == ["*conv2d*"]


@pytest.mark.parametrize(
    ("state", "jobs"),
    [(JobState.DONE, 0), (JobState.CANCELLED, 0), (JobState.TUNING, 0), (JobState.FAILED, 1)],
)
def test_a_second_start_asks_only_for_what_failed(
    networks: list[Network], state: JobState, jobs: int
) -> None:
    api, (first, *_) = Api(), passes(networks, 1, 64, 0)
    known = by_name([Answered(state, first.name), Answered(JobState.FAILED, first.name)])
    measure(api, first, known[first.name])  # type: ignore[arg-type]
    assert len(api.asked) == jobs


def test_drawn_networks_are_the_same_files_again(tmp_path: Path) -> None:
    one, again = drawn_networks(tmp_path / "one", 10, 3), drawn_networks(tmp_path / "again", 10, 3)
    assert [each.file.name for each in one] == ["generated-3-0.onnx", "generated-3-1.onnx"]
    assert [each.file.read_bytes() for each in one] == [each.file.read_bytes() for each in again]
    assert all(each.only for each in one)
    assert drawn_networks(tmp_path / "none", 0, 3) == []
