"""`mallorn fetch` brings a job's schedules and its library, and the option that leaves libraries out."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mallorn.cli.print_job_result import print_library
from mallorn.core.artifact_uris import library_uri
from mallorn.core.states import JobState
from mallorn.core.values.finish_report import FinishReport, StoredLibrary
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.core.values.manifest import Manifest
from mallorn.db.repositories.jobs import Jobs
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.coordinator import Coordinator, OwnedRows

pytestmark = pytest.mark.usefixtures("named_coordinator")
CONTENT = b"machine code"
LIBRARY = StoredLibrary(digest=sha256(CONTENT).hexdigest(), bytes=len(CONTENT))
REASON = "The job was submitted with --no-library."


@pytest.fixture
def done(owned: OwnedRows, coordinator: Coordinator) -> Any:
    """Ends the job with an export, and with a library or the reason for none."""

    def end(report: FinishReport) -> str:
        directory = coordinator.artifacts / "exports" / owned.job_id / "t"
        directory.mkdir(parents=True)
        with owned.database.transaction() as session:
            job = Jobs(session).get(owned.job_id, None)
            model, target = job.model_id, {"kind": "llvm", "num-cores": 2}
            Jobs(session).move_to_state(owned.job_id, [JobState.TUNING], JobState.DONE, "")
            Jobs(session).store_report_columns(owned.job_id, report=report, export_uri=str(directory))
        manifest = Manifest(model=model, target=target, recipe=StoredRecipe(), library=report.library)
        (directory / "manifest.json").write_text(manifest.model_dump_json())
        if report.library is not None:
            (file := Path(library_uri(str(directory), report.library.digest))).parent.mkdir()
            file.write_bytes(CONTENT)
        return owned.job_id

    return end


def test_a_job_is_fetched_with_its_library(done: Any, tmp_path: Path) -> None:
    job, out = done(FinishReport(library=LIBRARY)), tmp_path / "out"
    fetched = mallorn("fetch", job, "--out", out)
    assert fetched.exit_code == 0, fetched.stderr
    assert sorted(file.name for file in out.iterdir()) == ["manifest.json", "model.so"]
    assert (out / "model.so").read_bytes() == CONTENT
    assert f'Session("{out / "model.so"}")' in fetched.stderr


def test_or_only_that(done: Any, tmp_path: Path) -> None:
    job, out = done(FinishReport(library=LIBRARY)), tmp_path / "out"
    answer = data(mallorn("fetch", job, "--library", "--out", out, "--json"))
    assert answer == {"directory": str(out), "library": True}
    assert [file.name for file in out.iterdir()] == ["model.so"]


def test_why_there_is_none_is_said(done: Any, tmp_path: Path) -> None:
    job, out = done(FinishReport(no_library_reason=REASON)), tmp_path / "out"
    assert f"There is no model.so. {REASON}" in mallorn("fetch", job, "--out", out).stderr
    refused(mallorn("fetch", job, "--library", "--out", out), REASON, "mallorn compile")


def test_before_its_end_there_is_nothing_to_fetch(owned: OwnedRows) -> None:
    refused(mallorn("fetch", owned.job_id), f"mallorn watch {owned.job_id}")


def test_the_next_line_of_a_tuned_job_calls_its_library(capsys: pytest.CaptureFixture[str]) -> None:
    print_library(FinishReport(library=LIBRARY), Path("out/model.so"))
    assert "from mallorn_runtime import Session" in capsys.readouterr().err
    print_library(FinishReport(), Path("out/model.so"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("words", "expected"), [((), True), (("--no-library",), False)])
def test_an_option_leaves_libraries_out(model: Path, words: tuple[str, ...], expected: bool) -> None:
    target = '{"kind":"llvm","num-cores":2}'
    job = data(mallorn("submit", model, "--target", target, *words, "--json"))
    assert job["options"]["library"] is expected
