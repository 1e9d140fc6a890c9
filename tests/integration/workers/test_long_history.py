"""A round of a task with a long history reads a part of it, and yet tries nothing twice."""

import pytest

from mallorn.db.repositories import trials
from mallorn.workers.round import propose

READ = 8  # the newest trials that a round reads; it reads no others here


@pytest.fixture
def forgetful(workshop, monkeypatch):
    """A small space, of which nearly all is tried."""
    workshop.use_space(4, 4, 2)
    monkeypatch.setattr(trials, "NEWEST", READ)
    monkeypatch.setattr(trials, "FASTEST", 0)
    monkeypatch.setattr(propose, "NEWEST", READ)
    return workshop


def tried(workshop, rounds):
    job = workshop.job(("w0",), trials=1000, policy="round-robin", search="random", round_size=16)
    for _ in range(rounds):
        workshop.closed_round(job)
    return [(row.sketch_id, row.decisions) for row in workshop.rows(job_id=job)]


def test_no_candidate_is_tried_twice_though_its_trial_is_not_in_the_history(forgetful):
    candidates = tried(forgetful, rounds=6)
    assert len(candidates) > 4 * READ
    assert len(candidates) == len(set(candidates))


def test_without_looking_it_up_a_candidate_is_tried_again(forgetful, monkeypatch):
    monkeypatch.setattr(propose, "NEWEST", 10**6)
    candidates = tried(forgetful, rounds=6)
    assert len(candidates) > len(set(candidates)), "or the test above says nothing"
