"""`mallorn dataset generate`: what it would measure, and the jobs that it leaves to a service."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.answers import Shell, data, mallorn
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.kept import Kept

pytestmark = pytest.mark.usefixtures("named_coordinator")
TARGET = '{"kind":"llvm","num-cores":2}'


generate = partial(mallorn, "dataset", "generate")


def jobs(coordinator: Coordinator) -> list[dict[str, Any]]:
    return list(coordinator.http.get("/jobs").json()["items"])[::-1]


def test_a_dry_run_lists_the_tasks_and_submits_nothing(coordinator: Coordinator) -> None:
    rows = data(generate("--dry-run", "--tasks", 12, "--per-job", 5, "--json"))
    assert [row["job"] for row in rows] == [0] * 5 + [1] * 5 + [2] * 2
    assert rows[0]["shape"].startswith("batch=")
    assert "conv2d-depthwise" in generate("--dry-run").stdout
    assert jobs(coordinator) == []


def test_every_batch_is_a_job_at_random_and_a_job_by_search(coordinator: Coordinator) -> None:
    told = data(
        generate(
            "--tasks", 3, "--per-job", 2, "--candidates", 9, "--target", TARGET, "--kind", "dense", "--json"
        )
    )
    found = jobs(coordinator)
    assert [row["id"] for row in told] == [job["id"] for job in found]
    options = [job["options"] for job in found]
    assert [option["search"] for option in options] == ["random", "portfolio"] * 2
    assert [option["task_trials"] for option in options] == [4, 5, 4, 5]
    assert [job["trials"] for job in found] == [8, 10, 4, 5]
    assert {job["priority"] for job in found} == {-1000}
    assert all(option["only"] == ["*matmul*"] for option in options)
    assert len({job["model_id"] for job in found}) == 2


@pytest.mark.parametrize(
    ("share", "of_each"),
    [(1.0, {"portfolio": 9}), (0.0, {"random": 9}), (0.75, {"random": 2, "portfolio": 7})],
)
def test_all_candidates_may_be_searched_for_or_drawn(
    coordinator: Coordinator, share: float, of_each: dict[str, int]
) -> None:
    words = "--tasks", 1, "--candidates", 9, "--target", TARGET, "--kind", "dense", "--searched", share
    assert generate(*words, "--json").exit_code == 0
    options = [job["options"] for job in jobs(coordinator)]
    assert {option["search"]: option["task_trials"] for option in options} == of_each


def test_what_generate_tells(coordinator: Coordinator, shell: Shell, kept: Kept) -> None:
    shell.names["TARGET"] = TARGET
    refused = "--kind magic", "--rules gone.toml", "--kind softmax --tasks 9000"
    shell("what cannot be drawn", *(f"dataset generate {words}" for words in refused))
    assert jobs(coordinator) == [], "it is said before anything is submitted"
    result = generate("--tasks", 1, "--kind", "softmax", "--target", TARGET)
    assert (result.exit_code, len(jobs(coordinator))) == (0, 2)
    shell.names |= {name: job["id"] for name, job in zip(("FIRST", "SECOND"), jobs(coordinator), strict=True)}
    shell.texts["a service that goes on is not waited for"] = result.stderr
    kept("dataset-generate", shell.texts)


def test_rules_of_ones_own_are_used(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'version = 1\n[[kind]]\nname = "mine"\nbuild = "softmax"\nseeds = [{ rows = 8, columns = 8 }]\n'
        '[kind.changes]\nrows = ["rows + 1"]\n'
    )
    [row] = data(generate("--rules", file, "--tasks", 1, "--dry-run", "--json"))
    assert (row["kind"], row["shape"]) == ("mine", "rows=9 columns=8")
