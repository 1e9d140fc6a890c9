"""What a recording lacks is a warning of the job that replays it."""

from dataclasses import replace
from types import SimpleNamespace

from sqlalchemy import update

from mallorn.core.states import JobState
from mallorn.core.virtual_devices import ANY_RECORDING
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import Job
from mallorn_research.replay.recording_file import write_tasks
from research.tests.unit.replay.made_up import made_up
from tests.fixtures.work import import_job
from tests.fixtures.workshop import QUICK, TARGET
from tests.integration.workers.test_importing import found, job

__all__ = ["job"]


def test_what_a_recording_lacks_is_a_warning_and_what_holds_nothing_fails_the_job(
    workshop, job, tmp_path, monkeypatch
):
    settings = workshop.settings.model_copy(update={"recordings": ANY_RECORDING})
    monkeypatch.setattr(workshop, "tools", lambda _: SimpleNamespace(settings=settings, room=tmp_path))
    task = replace(made_up(10), workload="w0", target=TARGET.text)
    write_tasks(tmp_path / "recording.parquet", [task], {})
    options = {**QUICK, "measurer": "replay", "recording": str(tmp_path / "recording.parquet")}
    workshop.write(lambda session: session.execute(update(Job).values(options=options)))
    workshop.graph_answers["extract"] = found("w0", "w1")
    assert import_job(workshop, job)
    (warning,) = workshop.read(lambda session: Jobs(session).get(job, None)).warnings
    assert warning.source == "measurer replay"
    assert warning.message == "1 of 2 tasks are not in the recording: fused_w1"

    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.TUNING], JobState.IMPORTING))
    workshop.graph_answers["extract"] = found("w1")
    import_job(workshop, job)
    assert workshop.state(job) == JobState.FAILED
    assert "mallorn record" in workshop.explanation(job)
