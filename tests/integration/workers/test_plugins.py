"""Parts of one's own, as a searcher or a cost model: named MODULE:CLASS, and told when they fail."""

import sys
from pathlib import Path

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest, PluginFailed
from mallorn.core.settings import settings
from mallorn.core.states import JobState, RoundState
from mallorn.core.values.event import WarningEvent
from mallorn.costmodels.lightgbm_models import LightGBM
from mallorn.costmodels.random import RandomModel
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import WorkItem
from mallorn.searchers.algorithms.random import RandomSearch
from mallorn.searchers.base import Proposal
from mallorn.searchers.space import Candidate
from mallorn.services.planner.policy import Policy
from tests.integration.workers.test_round_life import proposals_of


class Mine(RandomSearch):
    """Works."""

    def propose(self, *given):
        return [Proposal(each.candidate, None, "idea") for each in super().propose(*given)]


class Raising(RandomSearch):
    """Does not."""

    def propose(self, *_given):
        raise ValueError("nothing comes to my mind")


class Astray(RandomSearch):
    """Breaks the contract."""

    def propose(self, *_given):
        return [Proposal(Candidate("of no sketch", ()), None, "astray")]


class Unfit(RandomModel):
    """Cannot learn."""

    def fit(self, *_rows, seed):
        raise np.linalg.LinAlgError("singular matrix")


class Refusing(RandomModel):
    """Does not like the rows."""

    def fit(self, *_rows, seed):
        raise InvalidRequest("these rows are of no use")


class Heir(LightGBM):
    """Learns as its base does."""


class Speechless(RandomModel):
    """Learns, and cannot be asked."""

    def predict(self, features):
        raise ZeroDivisionError("no rows like these")


class Undecided(Policy):
    """Chooses nothing."""

    def choose(self, arms, tasks, seed):
        raise LookupError("which one?")


def mine(kind):
    return f"{__name__}:{kind.__name__}"


def warnings(workshop, job):
    return workshop.read(lambda session: Jobs(session).get(job, None).warnings)


def test_a_searcher_of_ones_own_proposes_under_its_name(workshop):
    job = workshop.job(("w0",), trials=16, search=mine(Mine))
    workshop.work(job)
    assert {row.origin for row in workshop.rows()} == {f"{mine(Mine)}:idea"}
    assert warnings(workshop, job) == []


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (mine(Raising), "raised ValueError: nothing comes to my mind"),
        (mine(Astray), "distinct candidates of the space"),
        ("no_such_module:Mine", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_searcher_that_fails_costs_no_round_and_stands_on_the_job(workshop, search, words):
    job = workshop.job(("w0",), trials=16, search=search)
    workshop.work(job)
    assert len(workshop.rows()) == 16
    (warning,) = warnings(workshop, job)
    assert warning.source == f"searcher {search}"
    assert words in warning.message
    assert search not in warning.message, "its source names it"
    assert warning.message.endswith("; random proposes instead")
    assert warning.count == 2, "one a round"
    assert workshop.read(lambda session: Events(session).newest(job, WarningEvent)).source


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"search": "mallorn.core.registry:resolve"}, "is no mallorn.searchers.base.Searcher"),
        ({"cost_model": mine(Mine)}, "is no mallorn.costmodels.base.CostModel"),
        ({"sampler": mine(Heir)}, "is no mallorn.searchers.sampler.Sampler"),
        ({"policy": mine(Mine)}, "is no mallorn.services.planner.policy.Policy"),
        (
            {"families": "mallorn.core.registry:WORDS"},
            "is no mallorn.services.planner.families.base.Families",
        ),
    ],
)
def test_a_class_that_is_not_what_its_place_asks_for_fails_its_job_before_it_costs_trials(
    workshop, chosen, words
):
    job = workshop.job(("w0",), trials=16, **chosen)
    workshop.work(job)
    assert workshop.state(job) == JobState.FAILED
    assert words in workshop.explanation(job)
    assert workshop.rows() == []


def test_a_worker_takes_up_no_stored_job_whose_class_is_on_no_list(workshop):
    job = workshop.job(("w0",), trials=16, search="antigravity:x")
    round_id = workshop.next_round(job)
    workshop.settings.plugins.clear()
    assert workshop.run(round_id) is None
    assert workshop.state(job) == JobState.FAILED
    assert "the searcher antigravity:x is not allowed by the operator" in workshop.explanation(job)
    assert "antigravity" not in sys.modules


def test_control_plans_no_stored_job_whose_class_is_on_no_list(workshop, monkeypatch):
    monkeypatch.setattr(settings(), "plugins", [])
    job = workshop.job(("w0",), trials=16, policy="unittest.__main__:x")
    workshop.work(job)
    assert workshop.state(job) == JobState.FAILED
    assert "the task policy unittest.__main__:x is not allowed by the operator" in workshop.explanation(job)


def test_what_raised_is_told_with_its_line(workshop):
    job = workshop.job(("w0",), trials=8, search=mine(Raising))
    workshop.work(job)
    lines = Path(__file__).read_text().splitlines()
    line = next(at for at, text in enumerate(lines, 1) if "nothing comes to my mind" in text)
    assert f"({__file__}, line {line})" in warnings(workshop, job)[0].message


def test_a_round_without_its_searcher_can_be_recomputed(workshop):
    job = workshop.job(("w0",), trials=8, search=mine(Raising))
    round_id = workshop.next_round(job)
    workshop.run(round_id)
    row = workshop.round(round_id)
    assert (row.state, row.searcher) == (RoundState.DONE, "random")
    assert row.reason.skipped_parts[0].name == mine(Raising)
    _, proposals = proposals_of(workshop, round_id)
    measured = {(row.slot, row.origin) for row in workshop.rows()}
    assert measured == {(slot, proposal.origin) for slot, proposal in enumerate(proposals)}


def test_a_round_that_is_half_measured_is_not_mixed_with_another_searchers(workshop, monkeypatch):
    job = workshop.job(("w0",), trials=8, search=mine(Mine))
    round_id = workshop.next_round(job)

    def stop(slot):
        if slot.slot == 2:
            raise PluginFailed("lost on the way", seam="search", name=mine(Mine))

    workshop.bench.before = stop
    workshop.run(round_id)
    assert len(workshop.rows()) == 2
    monkeypatch.setattr(Mine, "propose", Raising.propose)
    workshop.run(round_id)
    row = workshop.round(round_id)
    assert (row.state, row.searcher) == (RoundState.QUEUED, mine(Mine))
    assert workshop.held(WorkItem.for_round(round_id)).losses == 2


def test_a_cost_model_that_cannot_learn_is_told_and_the_job_goes_on(workshop):
    job = workshop.job(("w0",), trials=32, cost_model=mine(Unfit))
    workshop.work(job)
    assert len(workshop.rows()) == 32
    (warning,) = warnings(workshop, job)
    assert warning.source == f"cost model {mine(Unfit)}"
    assert "singular matrix" in warning.message


def test_a_cost_model_that_refuses_its_rows_is_told_too(workshop):
    job = workshop.job(("w0",), trials=16, cost_model=mine(Refusing))
    workshop.work(job)
    (warning,) = warnings(workshop, job)
    assert "these rows are of no use" in warning.message


def test_a_cost_model_is_blamed_for_what_it_inherits(workshop, monkeypatch):
    monkeypatch.setattr(
        "mallorn.costmodels.lightgbm_models.check_rows", np.linalg.inv
    )  # takes other arguments
    job = workshop.job(("w0",), trials=16, cost_model=mine(Heir))
    workshop.work(job)
    (warning,) = warnings(workshop, job)
    assert warning.source == f"cost model {mine(Heir)}"
    assert "raised TypeError" in warning.message


def test_a_cost_model_that_cannot_predict_is_left_out(workshop):
    job = workshop.job(("w0",), trials=32, cost_model=mine(Speechless), search="ga")
    workshop.work(job)
    assert len(workshop.rows()) == 32
    messages = [warning.message for warning in warnings(workshop, job)]
    assert any(words.endswith("; candidates are proposed unguided") for words in messages)


def test_a_stored_model_that_cannot_be_read_any_more_is_left_out(workshop):
    workshop.work(workshop.job(("w0",), trials=8))  # later rounds have a history to ask a model about
    new = NewCostModel("operator:matmul", workshop.target_id, "xgboost", 0, 8, {}, b"cut short")
    workshop.write(lambda session: CostModels(session).add(new))
    job = workshop.job(("w0",), trials=16, cost_model="xgboost", search="ga")
    workshop.run(workshop.next_round(job))
    assert workshop.state(job) == JobState.TUNING
    (warning,) = warnings(workshop, job)
    assert warning.source == "cost model xgboost"
    assert warning.message.endswith("; candidates are proposed unguided")


def test_a_cost_model_whose_package_is_missing_is_told_with_the_line_that_installs_it(workshop, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    job = workshop.job(("w0",), trials=16, cost_model="tlp")
    workshop.work(job)
    (warning,) = warnings(workshop, job)
    assert "torch, which is not installed" in warning.message
    assert "pip install" in warning.hint


def test_a_policy_that_raises_fails_its_job_in_words(workshop):
    job = workshop.job(("w0", "w1"), trials=64, policy=mine(Undecided))
    workshop.work(job)
    assert workshop.state(job) == JobState.FAILED
    assert workshop.explanation(job).startswith(f"the task policy {mine(Undecided)} raised LookupError")


def test_a_stopping_rule_that_fails_ends_its_job_before_it_costs_trials(workshop):
    job = workshop.job(("w0",), trials=16)

    def fail(_slot):
        raise PluginFailed("the stopping rule mine:Rule raised KeyError: 'x' (mine.py, line 3)")

    workshop.bench.before = fail
    assert workshop.run(workshop.next_round(job)) is None
    assert workshop.state(job) == JobState.FAILED
    assert workshop.explanation(job).startswith("the stopping rule mine:Rule raised KeyError")
    assert workshop.rows() == []
