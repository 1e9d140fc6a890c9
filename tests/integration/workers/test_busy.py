"""What is fastest beside other programs: timed, kept in a context of its own, exported where it wins."""

import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from mallorn.core.states import JobState
from mallorn.core.values.finish_report import LoadedLatency
from mallorn.core.values.manifest import RECORDS
from mallorn.db.measurement_codec import unpack_decisions
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import Context, Measurement, Task
from mallorn.workers.finish import job_model
from mallorn.workers.finish.choose_under_load import (
    DATABASE,
    WORTH_UNDER_LOAD,
    find_crossover_load,
    loads_to_time,
)
from mallorn.workers.finish.job_model import JobModel
from mallorn.workers.subprocesses.errors import ChildFailed
from tests.fixtures.finishing import COMPILED, best, candidates, key, report
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish


@pytest.fixture
def busy(workshop, exported, inside, monkeypatch):
    """What a test wants of w0 beside two programs, build by build, and of the model by name and programs."""
    figures = {"kernels": [100.0, 60.0, 90.0, 95.0, 95.0, 95.0], "loaded": [1100.0, 1400.0, 1500.0]}
    inside["kernels"] = [100.0] * 9
    inside["latencies"] |= {"guesses": 2000.0}

    def write_database(directory, target, records):
        Path(directory).mkdir()
        for name in DATABASE:
            Path(directory, name).write_text(json.dumps([record.trace for record in records]))
        return []

    programs = [0]

    @contextmanager
    def run_load_programs(count):
        programs[0] = count
        yield
        programs[0] = 0

    class Busy(job_model.Engines):
        def kernel_times(self, seconds):
            if not programs[0]:
                return super().kernel_times(seconds)
            if isinstance(figures["kernels"], Exception):
                raise figures["kernels"]
            return {name: {"w0": us} for name, us in zip(self.names, figures["kernels"], strict=False)}

        def latencies(self, passes=5):
            if "alone" in self.names:
                self.model_us = {
                    "alone": [1000.0, 1500.0, 2000.0][programs[0]],
                    "loaded": figures["loaded"][programs[0]],
                }
            return super().latencies(passes)

    monkeypatch.setattr(job_model, "Engines", Busy)
    monkeypatch.setattr(job_model, "run_load_programs", run_load_programs)
    monkeypatch.setattr("mallorn.workers.finish.choose_under_load.require_local_device", lambda _model: True)
    workshop.graph_answers["write_database"] = write_database
    return figures


def folder(workshop, job):
    return Path(workshop.read(lambda session: Jobs(session).get(job, None)).export_uri)


def contexts(workshop):
    columns = Context.evaluator, Measurement.latency_us, Measurement.decisions
    query = select(*columns).join(Measurement).order_by(Measurement.latency_us)
    rows = workshop.read(lambda session: session.execute(query).all())
    return [row for row in rows if row.evaluator.get("beside")]


def test_a_version_that_wins_beside_other_programs_is_exported_with_the_load_from_which_on_it_does(
    workshop, busy
):
    job = tuned(workshop, ("w0",), contention=True)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    found = report(workshop, job)["contention"]
    assert found["tasks"] == [{"task": "w0", "before_us": 100.0, "after_us": 60.0}]
    assert [(each["programs"], each["alone_us"], each["loaded_us"]) for each in found["loads"]] == [
        (0, 1000.0, 1100.0),
        (1, 1500.0, 1400.0),
        (2, 2000.0, 1500.0),
    ]
    assert found["min_programs"] == 1
    names = [f"{kind}{RECORDS}" for kind in ("", "loaded_")]
    alone, loaded = ((folder(workshop, job) / name).read_text() for name in names)
    assert alone != loaded


def test_a_version_that_brings_nothing_is_told_and_not_exported(workshop, busy):
    busy["loaded"] = [1100.0, 1600.0, 2000.0 * (1 - WORTH_UNDER_LOAD / 2)]
    job = tuned(workshop, ("w0",), contention=True)
    finish(workshop, job)
    found = report(workshop, job)["contention"]
    assert found["min_programs"] is None
    assert not list(folder(workshop, job).glob("loaded_*"))


def test_where_the_same_schedules_are_fastest_there_is_no_other_version(workshop, busy):
    busy["kernels"] = [100.0] * 9
    job = tuned(workshop, ("w0",), contention=True)
    finish(workshop, job)
    found = report(workshop, job)["contention"]
    assert (found["tasks"], found["min_programs"]) == ([], None)
    assert {each["loaded_us"] for each in found["loads"]} == {None}


def test_a_version_that_computes_wrong_is_not_taken(workshop, busy, check):
    job = tuned(workshop, ("w0",), contention=True)
    first = key(best(workshop, job)[0])
    check.wrong |= {c for c in candidates(workshop) if (c.sketch, c.decisions) != first}
    finish(workshop, job)
    assert report(workshop, job)["contention"]["tasks"] == []


def test_times_beside_other_programs_are_kept_in_a_context_of_their_own(workshop, busy):
    job = tuned(workshop, ("w0",), contention=True)
    finish(workshop, job)
    kept = contexts(workshop)
    assert {row.latency_us for row in kept} >= {100.0, 60.0}
    assert all(row.evaluator.items() >= {"cache": "model", "beside": 2}.items() for row in kept)
    assert all(row.evaluator["model"] for row in kept)


def test_a_kernel_that_the_model_calls_twice_is_stored_with_the_time_of_one_call(workshop, busy, monkeypatch):
    job = tuned(workshop, ("w0",), contention=True)
    workshop.write(lambda session: session.execute(update(Task).where(Task.job_id == job).values(weight=2)))
    finish(workshop, job)
    assert {row.latency_us for row in contexts(workshop)} >= {50.0, 30.0}


def test_what_was_fastest_beside_others_takes_part_the_next_time(workshop, busy, monkeypatch):
    job = tuned(workshop, ("w0",), contention=True)
    finish(workshop, job)
    # Only what was fastest there, and the first guess, are left.
    monkeypatch.setattr("mallorn.workers.finish.choose_under_load.WITHIN", 0.0)
    seen = []
    build = JobModel.build

    def built(model, name, winners):
        seen.extend(winner.contest for winner in winners)
        return build(model, name, winners)

    monkeypatch.setattr(JobModel, "build", built)
    again = tuned(workshop, ("w0",), contention=True)
    finish(workshop, again)
    fastest = unpack_decisions(contexts(workshop)[0].decisions)
    assert fastest in [slot.candidate.decisions for contest in seen for slot in contest.slots]


def test_nobody_is_timed_beside_others_who_did_not_ask(workshop, busy):
    job = tuned(workshop, ("w0",))
    finish(workshop, job)
    assert "contention" not in report(workshop, job)
    assert contexts(workshop) == []


def test_of_a_model_that_is_large_for_this_host_there_is_one_version(workshop, busy):
    workshop.graph_answers["compile_model"] = replace(COMPILED, bytes=1 << 60)
    job = tuned(workshop, ("w0",), contention=True)
    finish(workshop, job)
    told = report(workshop, job)
    assert "contention" not in told
    assert "model_contests" not in told
    whys = {each["step"]: each["reason"] for each in told["skipped_steps"]}
    assert "memory" in whys["choose schedules for a busy machine"]


def test_what_fails_there_costs_the_version_alone(workshop, busy):
    busy["kernels"] = ChildFailed("InternalError", "no instrument here")
    job = tuned(workshop, ("w0",), contention=True)
    finish(workshop, job)
    assert workshop.state(job) == JobState.DONE
    steps = [each["step"] for each in report(workshop, job)["skipped_steps"]]
    assert "choose schedules for a busy machine" in steps


@pytest.mark.parametrize(("most", "expected"), [(1, [0, 1]), (2, [0, 1, 2]), (16, [0, 1, 8, 16])])
def test_loads_go_from_an_idle_host_to_a_full_one(most, expected):
    assert loads_to_time(most) == expected


@pytest.mark.parametrize(
    ("loaded_us", "expected"),
    [([90, 90, 90], 0), ([110, 90, 90], 1), ([90, 110, 90], 2), ([90, 90, 110], None), ([None] * 3, None)],
)
def test_the_crossover_is_where_the_version_wins_at_all_heavier_loads(loaded_us, expected):
    timed = [LoadedLatency(programs=n, alone_us=100, loaded_us=us) for n, us in enumerate(loaded_us)]
    assert find_crossover_load(timed) == expected
