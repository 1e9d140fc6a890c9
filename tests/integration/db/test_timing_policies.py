"""Rows of one GPU timed under two policies (cache emptied or not) are never taken for the same."""

import pytest
from sqlalchemy import update

from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target, parse_target
from mallorn.core.virtual_devices import add_virtual_device
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.schedules import BestRecords
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import Workloads
from mallorn.db.tables import Job, TargetRow
from mallorn.workers.measure.device_runs import DOMINATES
from mallorn.workers.round.train_cost_model import _load_data, _Refit
from mallorn.workers.zero_shot.answer_source import ZeroShotQuery
from mallorn.workers.zero_shot.measured_workloads import rank_trials_by_context
from tests.fixtures.rows import Rows

GPU = parse_target({"kind": "cuda", "arch": "sm_90a"})
CPU = parse_target({"kind": "llvm", "num-cores": 2})
FLUSHES = "auto", "on", "off"


def timing(flush_l2: str, target: Target = GPU) -> dict[str, object]:
    return JobOptions.model_validate({"evaluator": {"flush_l2": flush_l2}}).timing(target)


class GpuRows(Rows):
    """A workload timed on one GPU under each policy; the job is bound to the context with `on`."""

    def __init__(self, rows: Rows) -> None:
        self.__dict__.update(rows.__dict__)
        self.write(lambda session: session.execute(update(TargetRow).values(text=GPU.text)))
        self.contexts = {flush: self._context(timing(flush)) for flush in FLUSHES}
        inside = self._context(JobOptions().timing_inside(GPU, "a model", 0))
        times = {"auto": (1.0, 2.0), "on": (30.0, 40.0), "off": (5.0, 6.0)}
        measured = [(self.contexts[flush], us) for flush in FLUSHES for us in times[flush]]
        rows_of_round = enumerate([*measured, (inside, 0.5)])
        self.closed_round(*(self.ok(slot, us, context_id=context) for slot, (context, us) in rows_of_round))
        self.write(lambda session: session.execute(update(Job).values(context_id=self.contexts["on"])))

    def _context(self, evaluator: dict[str, object]) -> int:
        fields = self.target_id, "host+GPU", "0.27.0", 2, evaluator
        return int(self.write(lambda session: Contexts(session).ensure(*fields).id))


@pytest.fixture
def gpu(rows: Rows) -> GpuRows:
    return GpuRows(rows)


def test_a_context_names_when_the_cache_is_emptied_and_how_kernels_are_launched() -> None:
    cold_if = f"cold if an input has {DOMINATES} of all bytes"
    named = [(timing(flush)["cache"], timing(flush)["launch"]) for flush in FLUSHES]
    assert named == [(cold_if, "eager"), ("cold", "eager"), ("kept", "eager")]
    inside = JobOptions().timing_inside(GPU, "a model", 0)
    assert (inside["cache"], inside["launch"]) == ("model", "eager")


@pytest.mark.parametrize("target", [CPU, add_virtual_device(GPU, "simulated")], ids=["CPU", "simulated"])
def test_contexts_without_an_accelerator_are_those_of_earlier_versions(target: Target) -> None:
    kept = {"number": 3, "repeat": 1, "min_repeat_ms": 100, "stopping": "racing", "cache": "warm"}
    assert timing("auto", target) == kept
    assert JobOptions().timing_inside(target, "m", 2) == {"cache": "model", "beside": 2, "model": "m"}


def test_a_job_compares_only_times_of_its_own_policy(gpu: GpuRows) -> None:
    place = gpu.workloads["w0"], gpu.target_id
    job = gpu.read(lambda session: Jobs(session).get(gpu.job_id, None))
    for flush, best_us in (("auto", 1.0), ("on", 30.0), ("off", 5.0)):
        context_id = gpu.contexts[flush]

        def times(context_id: int = context_id) -> tuple[list[float | None], ...]:
            with gpu.database.session() as session:
                trials = Trials(session, job)
                found = (
                    trials.history(*place, context_id=context_id),
                    trials.best(*place, 1, context_id),
                    trials.best_incomparable(*place, 8, context_id),
                )
                return tuple([trial.latency_us for trial in each] for each in found)

        history, best, incomparable = times()
        assert (min(filter(None, history)), len(history), best) == (best_us, 2, [best_us])
        assert incomparable == [], "another policy is no other build of the same"
    summaries = gpu.read(lambda session: Tasks(session).summaries(gpu.job_id))
    assert summaries[0].best_us == 30.0


def test_training_compares_rows_of_one_policy_only(gpu: GpuRows) -> None:
    def load(session):  # type: ignore[no-untyped-def]
        job = Jobs(session).get(gpu.job_id, None)
        return _load_data(session, job, _Refit("matmul", gpu.target_id, "xgboost", None))

    data = gpu.read(load)
    by_group: dict[int, set[float | None]] = {}
    for row, group in zip(data.rows, data.groups.tolist(), strict=True):
        by_group.setdefault(group, set()).add(row.latency_us)
    assert sorted(map(sorted, by_group.values())) == [[0.5], [1.0, 2.0], [5.0, 6.0], [30.0, 40.0]]  # type: ignore[type-var]


def test_an_answer_from_the_dataset_takes_policies_in_turn(gpu: GpuRows) -> None:
    """The fastest of one policy is not among the fastest of another, whatever its time."""
    with gpu.database.session() as session:
        job = Jobs(session).get(gpu.job_id, None)
        workload = Workloads(session).get(gpu.workloads["w0"])
        query = ZeroShotQuery(job, workload, GPU, None)  # type: ignore[arg-type]
        ranked = rank_trials_by_context(session, query, workload.id, gpu.target_id)
        times = [trial.latency_us for trial, _ in ranked]
    assert {*times[:2]} == {1.0, 5.0}
    assert {*times[2:4]} == {2.0, 6.0}
    assert 30.0 not in times


def test_exported_records_name_the_policy(gpu: GpuRows) -> None:
    def named(session):  # type: ignore[no-untyped-def]
        records = BestRecords(session).of_target(gpu.target_id, "own")
        return {
            record.trial.latency_us: Contexts(session).get(record.context_id).measured_on.evaluator["cache"]
            for record in records
        }

    assert gpu.read(named) == {
        1.0: timing("auto")["cache"],
        30.0: "cold",
        5.0: "kept",
    }
