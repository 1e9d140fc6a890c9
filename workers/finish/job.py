"""Finishing a job: every step in order."""

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from db.repositories.events import Events
from db.repositories.jobs import Jobs
from db.repositories.progress import progress
from mallorn.core.states import JobState, StageKind
from workers.children.errors import ChildError
from workers.finish.contenders import Contest, contests, second_chance
from workers.finish.export import ExportFailed, complete_export, upload
from workers.finish.joint import affordable, decide_inside
from workers.finish.scripts import keep_scripts
from workers.finish.stand import Built, Stand, device_is_here
from workers.finish.verify import Verifier, verifier
from workers.finish.whole_model import judge
from workers.finish.winners import Winner, decide
from workers.measure.tvm import TvmMeasurer
from workers.runtime import Runtime
from workers.stage import Stage, stage

log = logging.getLogger(__name__)


def finish(runtime: Runtime, job_id: str) -> None:
    """Take a job from its last round to verified schedules and a report."""
    with stage(runtime, job_id, JobState.FINISHING) as claimed:
        if claimed is not None:
            with runtime.stage_run(StageKind.FINISH, job_id, f"finishing job {job_id}"):
                _finish(claimed)


def _finish(claimed: Stage) -> None:
    started = time.monotonic()
    why = _why_tuning_ended(claimed)
    with (
        TemporaryDirectory(prefix="mallorn-finish-") as scratch,
        claimed.runtime.graphs(claimed.target.num_cores) as graphs,
    ):
        folder = Path(scratch)
        stand = Stand(claimed, graphs, claimed.model_file(folder), folder)
        with verifier(claimed.runtime, claimed.target, graphs) as check:
            winners, losers = _decide_all(claimed, why, check)
            built, inside = _build(stand, winners, check)
        complete_export(claimed, built.winners, built.directory)
        keep_scripts(claimed, built.winners, graphs)
        report = judge(stand, built) | _tasks(built.winners, losers) | inside
        claimed.lease.check()
        report |= {"finish_sec": round(time.monotonic() - started, 1)} | _trials(claimed)
        (built.directory / "report.json").write_text(json.dumps(report, indent=1) + "\n")
        _store(claimed, why, report, upload(claimed, built.directory))


def _decide_all(claimed: Stage, why: str, check: Verifier) -> tuple[list[Winner], list[Contest]]:
    measurer = TvmMeasurer.from_tools(claimed.runtime.tools)
    winners: list[Winner] = []
    losers: list[Contest] = []
    held = contests(claimed)
    for number, contest in enumerate(held, 1):
        winner = _decide(claimed, contest, measurer, check)
        if winner is None:
            losers.append(contest)
        else:
            winners.append(winner)
        _tell(claimed, f"{why}; {number} of {len(held)} tasks are checked", contest, winner)
    return winners, losers


def _build(stand: Stand, winners: list[Winner], check: Verifier) -> tuple[Built, dict[str, Any]]:
    """The model's build with the winners, or with rivals of theirs that do better inside it."""
    stand.prepare()
    first = stand.build("export", winners)
    if not device_is_here(stand.claimed) or not affordable(stand, first):
        return first, {}
    try:
        joint = decide_inside(stand, first, check)
    except (ChildError, ExportFailed) as error:
        log.warning("the first build is kept: %s", error)
        return first, {}
    return joint.build, {"inside_the_model": joint.report}


def _decide(claimed: Stage, contest: Contest, measurer: TvmMeasurer, check: Verifier) -> Winner | None:
    if (winner := decide(claimed, contest, measurer, check)) is not None:
        return winner
    again = second_chance(claimed, contest)
    return decide(claimed, again, measurer, check) if again is not None else None


def _why_tuning_ended(claimed: Stage) -> str:
    with claimed.runtime.database.session() as session:
        news = Events(session).newest(claimed.job.id, "finishing")
    return str(news.payload["why"]) if news is not None else ""


def _tell(claimed: Stage, words: str, contest: Contest, winner: Winner | None) -> None:
    latency_us = winner.latency_us if winner else None
    payload = {"task": contest.task.index, "name": contest.task.name, "latency_us": latency_us}
    with claimed.runtime.database.transaction() as session:
        Events(session).append(claimed.job.id, "checked", payload)
        Jobs(session).say(claimed.job.id, words)


def _tasks(winners: Sequence[Winner], losers: Sequence[Contest]) -> dict[str, Any]:
    return {
        "tasks_us": {winner.contest.task.name: winner.latency_us for winner in winners},
        "without_schedule": [contest.task.name for contest in losers],
    }


def _trials(claimed: Stage) -> dict[str, Any]:
    with claimed.runtime.database.session() as session:
        how_far = progress(session, Jobs(session).get(claimed.job.id, None))
    return {"trials": how_far.spent, "outcomes": how_far.outcomes}


def _store(claimed: Stage, why: str, report: dict[str, Any], url: str) -> None:
    with claimed.runtime.database.transaction() as session:
        Jobs(session).record(claimed.job.id, report=report, export_uri=url)
        claimed.end(session, JobState.DONE, why, "done", {"report": report})
