"""No route answers an owner with what another owner's private job, or one with `dataset=off`, has found."""

from dataclasses import replace
from typing import Any, Final

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from mallorn.core.api_keys import Scope
from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState, RoundState
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.workloads import Workloads
from mallorn.db.tables import Job
from tests.contract.test_who_may import ask_path, routes
from tests.fixtures.coordinator import OwnedRows, Start
from tests.fixtures.rows import new_job, new_workload

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

PRIVATE_US: Final = 3.3125
WITHHELD_US: Final = 5.5625
MODEL: Final = "b" * 64
SECRET: Final = replace(new_workload("secret"), name="fused_patient_scan", tir="patient_scan_weights")


class Withheld(OwnedRows):
    """Mallory's job of `w0`; Bob's private job of `secret` and his job of `w0` with `dataset=off`."""

    def _fill(self, session: Session, workloads: tuple[str, ...], owner: str) -> None:
        super()._fill(session, workloads, owner)
        self.workloads |= Workloads(session).ensure_many([SECRET], private=True, code="1")
        Models(session).add(MODEL, "bob", "patient_scan.onnx", 10)
        self.private_id = self._add_job(session, "secret", JobOptions(private=True))
        self.off_id = self._add_job(session, "w0", JobOptions(dataset="off"))
        session.execute(update(Job).values(context_id=self.context_id))

    def _add_job(self, session: Session, workload: str, options: JobOptions) -> str:
        fields = {"model_id": MODEL, "options": options.model_dump(mode="json")}
        job_id = Jobs(session).create(new_job("bob", target_id=self.target_id, **fields))[0].id
        task = NewTask(0, f"patient_scan_{workload}", 1, self.workloads[workload], "matmul")
        Tasks(session).add_many(job_id, [task])
        Jobs(session).move_to_state(job_id, [JobState.QUEUED], JobState.TUNING)
        return job_id

    def measure(self, job_id: str, workload: str, latency_us: float) -> None:
        round_id = self.write(lambda session: self.add_round(session, workload, job_id))
        hold = self.write(lambda session: Rounds(session).claim(round_id, "w", 60))
        assert hold is not None
        batch = [self.ok(0, latency_us)]
        self.write(lambda session: Measurements(session).add_trials(hold, batch))
        self.write(lambda session: Rounds(session).close(hold, RoundState.DONE))

    def publish(self, latency_us: float) -> None:
        """Let Ada's job bring `secret` to the dataset and measure it."""
        shared = replace(new_workload("secret"), tir="of ada")
        self.write(lambda session: Workloads(session).ensure_many([shared], code="1"))
        job_id = self.write(lambda session: self.add_job(session, "ada", ("secret",)))
        self.measure(job_id, "secret", latency_us)


def test_no_answer_tells_what_was_withheld(start: Start) -> None:
    coordinator = start(api_keys={"ada": "0" * 64})
    rows = Withheld(coordinator.database, "mallory")
    rows.measure(rows.private_id, "secret", PRIVATE_US)
    rows.measure(rows.off_id, "w0", WITHHELD_US)
    rows.publish(9.0)
    coordinator.parts.stopping.set()  # streams of events end at once
    key = coordinator.new_key("mallory", Scope.READ, Scope.SUBMIT).key
    told = [str(PRIVATE_US), str(WITHHELD_US), "patient_scan", "bob", rows.private_id, rows.off_id]
    queries: list[dict[str, Any]] = [{}, {"workload": "secret"}, {"workload": "w0"}, {"operator": "matmul"}]
    answers = {}
    for route in routes(coordinator):
        if route.method == "GET" and "oidc" not in route.path:
            for query in queries:
                path = ask_path(route, job_id=rows.job_id, model_id=MODEL)
                answer = coordinator.ask(key, "GET", coordinator.url + path, params=query)
                answers[route.name, str(query)] = answer.text
    assert len(answers) > 60
    lookup = answers["GET /api/v1/schedules/lookup", str({"workload": "secret"})]
    assert "fused_secret" in lookup
    assert "9.0" in lookup
    found = {name: word for name, text in answers.items() for word in told if word in text}
    assert found == {}
