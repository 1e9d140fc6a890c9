"""Finishing a job: every step in order."""

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from db.repositories.jobs import Jobs
from db.repositories.progress import progress
from mallorn.core.states import JobState
from workers.finish.contenders import Contest, contests
from workers.finish.export import upload, write_export
from workers.finish.verify import verifier
from workers.finish.whole_model import Files, judge
from workers.finish.winners import Winner, decide
from workers.measure.tvm import TvmMeasurer
from workers.runtime import Runtime
from workers.stage import Stage, stage


def finish(runtime: Runtime, job_id: str) -> None:
    """Take a job from its last round to verified schedules and a report."""
    with (
        stage(runtime, job_id, JobState.FINISHING) as claimed,
        runtime.working_on(f"finishing job {job_id}"),
    ):
        if claimed is not None:
            _finish(claimed)


def _finish(claimed: Stage) -> None:
    started = time.monotonic()
    winners, losers = _decide_all(claimed)
    with (
        TemporaryDirectory(prefix="mallorn-finish-") as scratch,
        claimed.runtime.graphs(claimed.target.num_cores) as graphs,
    ):
        directory = Path(scratch) / "export"
        write_export(claimed, winners, graphs, directory)
        files = Files(claimed.model_file(Path(scratch)), directory, Path(scratch))
        report = judge(claimed, graphs, files) | _tasks(winners, losers)
        claimed.lease.check()
        report |= {"finish_sec": round(time.monotonic() - started, 1)} | _trials(claimed)
        (directory / "report.json").write_text(json.dumps(report, indent=1) + "\n")
        _store(claimed, report, upload(claimed, directory))


def _decide_all(claimed: Stage) -> tuple[list[Winner], list[Contest]]:
    measurer = TvmMeasurer.from_tools(claimed.runtime.tools)
    winners: list[Winner] = []
    losers: list[Contest] = []
    with verifier(claimed.runtime, claimed.target) as check:
        for contest in contests(claimed):
            winner = decide(claimed, contest, measurer, check)
            if winner is None:
                losers.append(contest)
            else:
                winners.append(winner)
    return winners, losers


def _tasks(winners: list[Winner], losers: list[Contest]) -> dict[str, Any]:
    return {
        "tasks_us": {winner.contest.task.name: winner.latency_us for winner in winners},
        "without_schedule": [contest.task.name for contest in losers],
    }


def _trials(claimed: Stage) -> dict[str, Any]:
    with claimed.runtime.database.session() as session:
        how_far = progress(session, Jobs(session).get(claimed.job.id, None))
    return {"trials": how_far.spent, "outcomes": how_far.outcomes}


def _store(claimed: Stage, report: dict[str, Any], url: str) -> None:
    with claimed.runtime.database.transaction() as session:
        Jobs(session).record(claimed.job.id, report=report, export_uri=url)
        claimed.end(session, JobState.DONE, claimed.job.reason, "done", {"report": report})
