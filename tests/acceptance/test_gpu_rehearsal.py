"""The minutes with a GPU, rehearsed in an empty directory without a network, on this machine's processor."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.gpu.assertions import ASSERTIONS
from benchmarks.gpu.kernel_index import FIRST_GUESS, WGMMA
from benchmarks.gpu.prepare import MEGABYTE
from benchmarks.gpu.recording import record
from benchmarks.gpu.rehearse import (
    TRANSFER_MB,
    Rehearsal,
    Transfers,
    prepare_rehearsal,
    rehearse,
    version_there,
)
from benchmarks.gpu.report import report
from benchmarks.gpu.search_places import FOLDER, METHODS, SEED
from benchmarks.gpu.tasks import REHEARSAL, SEARCHED_REHEARSAL
from benchmarks.gpu.trials import read_trials
from benchmarks.lab.replay_search import RecordedArena, ShownSpace
from mallorn_research.replay.recording_file import read_tasks

# The packages and the packed compiler stay for the next run.
OUT = Path(__file__).resolve().parents[2] / "build" / "gpu-rehearsal"

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def transfers() -> Transfers:
    return prepare_rehearsal(OUT, version_there())


@pytest.fixture(scope="module")
def rehearsal(transfers: Transfers, empty: Path) -> Rehearsal:
    return rehearse(OUT, empty, version_there())


def test_no_transfer_is_larger_than_its_limit(transfers: Transfers) -> None:
    assert len(transfers["transfers_bytes"]) > 2, "the compiler alone is larger than one transfer"
    for size in transfers["transfers_bytes"].values():
        assert size + transfers["tracked_bytes"] <= TRANSFER_MB * MEGABYTE


def test_every_assertion_holds_or_says_why_it_is_left_out(rehearsal: Rehearsal) -> None:
    asserted = [row for row in rehearsal.cells["part 1"] if str(row["cell"]).startswith("assertion")]
    assert len(asserted) == len(ASSERTIONS)
    assert [row for row in asserted if row["ok"] is False] == []
    assert all(row["left_out"] for row in asserted if row["ok"] is None)


def test_first_guesses_are_right_and_timed_and_no_wrong_kernel_has_a_time(rehearsal: Rehearsal) -> None:
    kernels = [row for row in rehearsal.cells["part 1"] if "task" in row]
    guesses = [row for row in kernels if row["means"] == FIRST_GUESS]
    assert {row["task"] for row in guesses} == {task.name for task in REHEARSAL}
    assert [row for row in guesses if not (row["ok"] and row["us"])] == []
    assert all(("us" in row) == row["ok"] for row in kernels), (
        "a schedule of chance may compute something else"
    )
    assert all(row["rival_left_out"] == "torch is not installed" for row in kernels if row["ok"])


def test_the_prototype_for_hopper_gpus_says_why_it_does_not_run(rehearsal: Rehearsal) -> None:
    (cell,) = (row for row in rehearsal.cells["part 1"] if row["cell"] == WGMMA)
    assert (cell["ok"], cell["left_out"]) == (None, "it runs on sm_90a only, and the kernels are for llvm")


def test_a_part_that_was_killed_does_nothing_twice(rehearsal: Rehearsal) -> None:
    for name, cells in rehearsal.cells.items():
        assert max(Counter(str(row["cell"]) for row in cells).values()) == 1
        again = [cell for cell, starts in Counter(rehearsal.begun[name]).items() if starts > 1]
        assert len(again) <= 1, "only what was under way when it was killed begins again"


def test_every_method_searches_with_equal_trials_and_the_best_are_timed_in_turn(
    rehearsal: Rehearsal, empty: Path
) -> None:
    found = {str(row["cell"]): row for row in rehearsal.cells["part 3"]}
    (task,) = SEARCHED_REHEARSAL
    searched = {method: found[f"{task.name}/{method}/{SEED}"] for method in METHODS}
    assert [row for row in searched.values() if not (row["ok"] and row["timed"])] == []
    assert len({row["trials"] for row in searched.values()}) == 1
    assert all(0 <= float(str(row["idle_share"])) <= 1 for row in searched.values())
    assert set(found[f"{task.name}/in turn"]["us"]) == {FIRST_GUESS, *METHODS}  # type: ignore[arg-type]
    assert found[f"{task.name}/sanitizer racecheck"]["left_out"] == "there is no GPU"


def test_the_trials_that_came_back_become_a_recording(
    rehearsal: Rehearsal, empty: Path, tmp_path: Path
) -> None:
    assert rehearsal.cells["part 3"]
    files = sorted((empty / "results" / FOLDER).glob("*/trials.jsonl"))
    trials = list(read_trials(files))
    record(files, tmp_path / "recording.parquet", None)
    (task,) = read_tasks(tmp_path / "recording.parquet")
    assert {trial.candidate for trial in task.trials} == {each.trial.candidate for each in trials}
    assert RecordedArena(task, ShownSpace.RECORDED).optimum_us == min(
        each.trial.latency_us or 1e9 for each in trials
    )


def test_a_job_that_was_killed_goes_on_and_its_model_is_timed(rehearsal: Rehearsal) -> None:
    found = {str(row["cell"]): row for row in rehearsal.cells["part 4"]}
    assert found["mlp: tuned"]["state"] == "done", found["mlp: tuned"]
    assert found["mlp: compiled"]["ok"]
    assert found["mlp: tuned alone"]["us"]
    for rival in ("torch eager", "torch.compile"):
        assert found[f"mlp: {rival} alone"]["left_out"] == "torch is not installed"


def test_the_report_has_a_table_of_each_kind(rehearsal: Rehearsal, empty: Path) -> None:
    told = report(empty / "results")
    titles = ("Assertions", "Device", "Kernels", "The prototype by wgmma", "Searches", "Whole models", "Aims")
    for title in titles:
        assert f"## {title}" in told
