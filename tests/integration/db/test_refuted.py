"""A wrong result counts for the owner of the job that found it; for others, once two owners found it."""

import pytest
from sqlalchemy import update

from mallorn.core.outcomes import Outcome
from mallorn.core.states import RoundState
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.schedules import BestRecords
from mallorn.db.repositories.tasks import TaskHistories, Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.tables import Job, Measurement
from tests.fixtures.rows import Rows

OWNERS = "ada", "bob", "eve"


class Owners(Rows):
    """A job of `w0` for each owner; Ada's has timed candidate 1 at 10 us, the best, and 2 at 30 us."""

    def _fill(self, session, workloads, owner):
        super()._fill(session, workloads, owner)
        self.jobs = {owner: self.job_id}
        for other in OWNERS[1:]:
            self.jobs[other] = self.add_job(session, other, workloads)
        session.execute(update(Job).values(context_id=self.context_id))

    def measure(self, owner, *batch):
        """Store a closed round of the owner's job."""
        round_id = self.write(lambda session: self.add_round(session, "w0", self.jobs[owner]))
        hold = self.write(lambda session: Rounds(session).claim(round_id, "w", 60))
        self.write(lambda session: Measurements(session).add_trials(hold, batch))
        self.write(lambda session: Rounds(session).close(hold, RoundState.DONE))

    def refute(self, owner, slot=1):
        self.measure(owner, self.failed(slot, Outcome.WRONG_RESULT))

    def best_us(self, owner):
        """What the owner's job takes for the best time, by every query that answers it."""

        def read(session):
            job = Jobs(session).get(self.jobs[owner], None)
            [best] = Trials(session, job).best(self.workloads["w0"], self.target_id)
            summary = Tasks(session).summaries(job.id)[0]
            rounds = [one.best_us for one in TaskHistories(session).of(job)[0].curve.points]
            return {best.latency_us, summary.best_us, min(us for us in rounds if us is not None)}

        [us] = self.read(read)
        return us

    def exported_us(self):
        found = self.read(lambda session: BestRecords(session).of_target(self.target_id, "own"))
        return [record.trial.latency_us for record in found]


@pytest.fixture
def owners(database):
    rows = Owners(database)
    rows.measure("ada", rows.ok(1, 10.0), rows.ok(2, 30.0))
    return rows


def test_one_other_owners_wrong_result_takes_nothing_from_an_owner(owners):
    owners.refute("eve")
    owners.refute("eve")
    assert (owners.best_us("ada"), owners.best_us("bob")) == (10.0, 10.0)
    assert owners.exported_us() == [10.0]


def test_a_wrong_result_counts_for_the_owner_whose_job_found_it(owners):
    owners.refute("eve")
    assert owners.best_us("eve") == 30.0


def test_wrong_results_of_two_owners_count_for_all(owners):
    owners.refute("eve")
    owners.refute("bob")
    assert {owners.best_us(owner) for owner in OWNERS} == {30.0}
    assert owners.exported_us() == [30.0]


def test_a_wrong_result_takes_back_the_same_owners_times_for_all(owners):
    owners.refute("ada")
    assert {owners.best_us(owner) for owner in OWNERS} == {30.0}
    assert owners.exported_us() == [30.0]


def test_a_wrong_result_takes_back_an_owners_own_time_only(owners):
    owners.measure("bob", owners.ok(1, 12.0))
    owners.refute("bob")
    assert (owners.best_us("bob"), owners.best_us("ada")) == (30.0, 10.0)


@pytest.mark.parametrize(("refuting", "expected_us"), [("imported", 30.0), ("eve", 10.0)])
def test_imported_rows_are_refuted_by_imported_rows(owners, refuting, expected_us):
    owners.refute("bob")
    imported = [Measurement.outcome == Outcome.OK]
    if refuting == "imported":
        imported = [Measurement.id > 0]
    owners.write(lambda session: session.execute(update(Measurement).where(*imported).values(job_id=None)))
    assert owners.exported_us() == [expected_us]
