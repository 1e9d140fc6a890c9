"""Load a round's inputs from the database: program, options, history and cost model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2

from sqlalchemy.orm import Session

from mallorn.core.cost_model_name import CostModelName
from mallorn.core.job_options import JobOptions, KeptOptions
from mallorn.core.targets import Target
from mallorn.core.values.machine import Machine
from mallorn.costmodels.base import CostModel
from mallorn.db.repositories.devices import machine_key_of
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import tir_of
from mallorn.db.tables import CostModelRow, Round, Workload
from mallorn.searchers.base import Trial
from mallorn.searchers.fill_round import UNDECIDED, as_pending_trials
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.device.device_class import DeviceClass
from mallorn.workers.interfaces.tensor_arguments import unpack_arguments
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.process.match_devices_and_builder import class_of, limits_of
from mallorn.workers.round.feature_lookup import WorkloadOnTarget
from mallorn.workers.round.select_cost_model import create_unfitted_model, model_of, reads_current_view


@dataclass(frozen=True, slots=True)
class LoadedRound:
    """A round and all inputs from which its candidates are proposed."""

    row: Round
    task_index: int
    task_name: str
    options: JobOptions
    target: Target
    like: DeviceClass | None  # of devices whose times are comparable with the job's
    machine: Machine | None  # as probed before the job's first round; None: a virtual device measures
    program: Program
    descriptors: tuple[float, ...]
    history: tuple[Trial, ...]
    model: CostModel | None  # version fixed by the first claim: the family's own, or a base
    model_name: str | None  # its family, name and version
    model_kind: str | None  # its registered name
    on_base: bool  # whether the model is a base or builds on one, so knows more than this job
    done_slots: frozenset[int]
    pending: tuple[Trial, ...] = ()  # the end of `history`: candidates of other open rounds
    waits_for_pending: bool = False  # whether a candidate of these may soon be free again

    def work(self, sketches: Mapping[str, Sketch]) -> WorkloadOnTarget:
        return WorkloadOnTarget(
            self.row.workload_id,
            self.row.target_id,
            self.program.tir,
            self.target.text,
            self.descriptors,
            sketches,
        )

    @property
    def best_us(self) -> float | None:
        """The lowest time in the history, in microseconds; None without a time."""
        return min((time for trial in self.history if (time := trial.time_us) is not None), default=None)


def load_round(session: Session, round_id: int, is_new: bool = False) -> LoadedRound:
    """Load a round; if it `is_new`, no attempt has measured a candidate of it."""
    row, job, task, workload, target_row, context, proposer = Rounds(session).load(round_id)
    others = [other for other in Rounds(session).list_in_flight(row) if other.proposals]
    pending = [each for other in others for each in as_pending_trials(other.proposals or ())]
    options = KeptOptions.model_validate(job.options)
    target = Target(target_row.text)
    if proposer is not None and not reads_current_view(proposer.name, str(proposer.metrics.get("view", ""))):
        proposer = None  # an earlier attempt chose it with other code
    model = None if proposer is None else model_of(proposer)
    if model is None:
        model = create_unfitted_model(options.cost_model, row.reason.skipped_parts)
    # Context 0 does not exist, so a job whose device is unknown has no history.
    history = Trials(session, job).history(
        row.workload_id, row.target_id, row.seen_upto, job.context_id or 0, limits_of(options, target)
    )
    return LoadedRound(
        row=row,
        task_index=task.index,
        task_name=task.name,
        options=options,
        target=target,
        like=None if context is None else class_of(machine_key_of(context)),
        machine=job.machine,
        program=program_of(workload),
        descriptors=descriptors_of(workload),
        history=(*history, *pending),
        model=model,
        model_name=None if proposer is None else str(_name_of(proposer)),
        model_kind=None if model is None else options.cost_model if proposer is None else proposer.name,
        on_base=proposer is not None and (_name_of(proposer).is_base or "base" in proposer.metrics),
        done_slots=frozenset(() if is_new else Rounds(session).done_slots(round_id)),
        pending=tuple(pending),
        # Another job's detached rounds may be open for days.
        waits_for_pending=any(not one.detached or one.job_id == row.job_id for one in others),
    )


def find_tried(
    session: Session, round_: LoadedRound, candidates: Iterable[Candidate], upto: int | None
) -> set[Candidate]:
    """Return which candidates have a result up to measurement `upto`, if that is given."""
    row, limits = round_.row, limits_of(round_.options, round_.target)
    job = Jobs(session).get(row.job_id, None)
    of_round = row.workload_id, row.target_id, upto, job.context_id or 0
    trials = Trials(session, job).history(*of_round, limits, frozenset(candidates))
    return {trial.candidate for trial in trials if trial.outcome not in UNDECIDED}


def program_of(workload: Workload) -> Program:
    return Program(workload.key, tir_of(workload), unpack_arguments(workload.args), workload.flops)


def descriptors_of(workload: Workload) -> tuple[float, ...]:
    """Return log2 of FLOPs and loop extents, which tell a cost model workloads apart."""
    return descriptors(workload.flops, workload.features["extents"])


def descriptors(flops: float, extents: Sequence[int]) -> tuple[float, ...]:
    """Return the features of a workload that is not in the database; see
    `descriptors_of`."""
    return (log2(1 + flops), *(log2(1 + extent) for extent in extents))


def work_of(
    workload: Workload, target_id: int, target: str, sketches: Mapping[str, Sketch]
) -> WorkloadOnTarget:
    return WorkloadOnTarget(
        workload.id, target_id, tir_of(workload), target, descriptors_of(workload), sketches
    )


def _name_of(row: CostModelRow) -> CostModelName:
    return CostModelName(row.family, row.name, row.version)
