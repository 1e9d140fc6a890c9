"""The compiled and checked model is stored with the export; where there is none, the report says why."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from mallorn.core.artifact_uris import library_uri
from mallorn.core.states import JobState
from mallorn.core.values.dynamic_shapes import Rule
from mallorn.core.values.manifest import Manifest
from mallorn.db.repositories.jobs import Jobs
from tests.fixtures.finishing import COMPILED, CRASHED, export_of, ranged, report
from tests.fixtures.timed_models import finish_anyway, steps
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish

CONTENT = "a library of export"  # as the compiler of these tests writes it
DIGEST = sha256(CONTENT.encode()).hexdigest()


def libraries(workshop, job):
    """The files beside the job's export."""
    folder = Path(library_uri(str(export_of(workshop, job)), "")).parent
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.is_dir() else {}


def manifest(workshop, job):
    return json.loads((export_of(workshop, job) / "manifest.json").read_text())


def test_the_checked_library_is_stored_under_its_digest(workshop, answers):
    job = tuned(workshop)
    finish(workshop, job)
    assert libraries(workshop, job) == {f"{DIGEST}.so": CONTENT}
    named = report(workshop, job)["library"]
    assert (named["digest"], named["bytes"]) == (DIGEST, len(CONTENT))
    assert manifest(workshop, job)["library"]["digest"] == DIGEST
    assert not (export_of(workshop, job) / "model.so").exists()  # the archive of schedules has none
    assert "no_library_reason" not in report(workshop, job)


def test_a_job_that_goes_on_keeps_only_its_newest_library(workshop, answers):
    job = tuned(workshop)
    finish(workshop, job)
    (older := Path(library_uri(str(export_of(workshop, job)), DIGEST))).rename(older.with_name("older.so"))
    workshop.write(lambda session: Jobs(session).resume(job, "ada", 8))
    workshop.work(job)
    finish(workshop, job)
    assert list(libraries(workshop, job)) == [f"{DIGEST}.so"]


def test_an_option_leaves_it_out(workshop, answers):
    told = finish_anyway(workshop, library=False)
    assert told["no_library_reason"] == "The job was submitted with --no-library."
    assert "library" not in told


@pytest.mark.parametrize(
    ("graphs", "engines", "words"),
    [
        ({"compile_model": CRASHED}, {}, "was not compiled"),
        ({"compare_models": 0.25}, {}, "could not be checked"),
        ({}, {("tuned", "save_outputs"): CRASHED}, "could not be checked"),
        ({}, {("runtime", "run_alone"): CRASHED}, "could not be checked"),
    ],
    ids=["it does not compile", "it computes something else", "it crashes", "no program can call it"],
)
def test_what_was_not_checked_is_not_stored(workshop, answers, graphs, engines, words):
    workshop.graph_answers |= graphs
    answers |= engines
    job = tuned(workshop)
    finish(workshop, job)
    told = report(workshop, job)
    assert words in told["no_library_reason"]
    assert "library" not in told
    assert steps(told)
    assert libraries(workshop, job) == {}
    assert manifest(workshop, job)["library"] is None


def test_a_link_that_the_compilers_process_left_is_not_followed(workshop, answers, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of the worker")
    compiled = workshop.graph_answers["compile_model"]

    def link(out_so, **_given):
        Path(out_so).symlink_to(secret)
        return compiled

    workshop.graph_answers["compile_model"] = link
    job = tuned(workshop)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    assert steps(report(workshop, job)) == ["store the library"]
    assert libraries(workshop, job) == {}


def test_of_a_range_the_library_with_the_exports_rules_is_checked_and_stored(workshop, answers, monkeypatch):
    job = tuned(workshop)
    ranged(workshop, job)
    compiled = []

    def let_the_larger_size_compute_all(directory, _points):
        file = directory / "manifest.json"
        described = Manifest.model_validate_json(file.read_text())
        dynamic = described.dynamic.model_copy(update={"rules": [Rule(upto={"n": 8}, point=1)]})
        file.write_text(described.model_copy(update={"dynamic": dynamic}).model_dump_json())

    def compile_model(out_so, dynamic, **_given):
        compiled.append([(rule.upto["n"], rule.point) for rule in dynamic.rules])
        Path(out_so).write_text(f"library {len(compiled)}")
        return COMPILED

    monkeypatch.setattr(
        "mallorn.workers.finish.export_directory.rewrite_dispatch_rules", let_the_larger_size_compute_all
    )
    workshop.graph_answers["compile_model"] = compile_model
    finish(workshop, job)
    assert compiled == [[(1, 0), (8, 1)], [(8, 1)]]
    assert list(libraries(workshop, job).values()) == ["library 2"]
