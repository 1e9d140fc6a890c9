"""A fleet of unlike workers: each does what it can, and jobs that none can do say what they wait for."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from secrets import token_hex

import pytest
from sqlalchemy import select

from mallorn import Client, Job
from mallorn.core.states import JobState, RoundState, StageKind, WorkKind
from mallorn.core.values.fleet import WorkerStatus
from mallorn.db.session import Database
from mallorn.db.tables import Context, LeaseRow, Round, StageRun
from mallorn.db.tables import Job as JobRow
from mallorn.kinds.cuda.kind import Cuda
from tests.fixtures.command_line import mallorn, typed
from tests.fixtures.database import PostgresServer
from tests.fixtures.namespaces import OtherHost, why_not
from tests.fixtures.parts_by_hand import Parts, started_by_hand
from tests.fixtures.service import JOB_SEC, dense_network, seldom
from tests.fixtures.waiting import wait_for
from tests.fixtures.worker_images import Image

NAMES = ("gnu", "cuda", "lld")
PARTS = (("serve",), ("control",), ("tracker",))
ARM = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 4}
GPU = {"kind": "cuda", "arch": "sm_90"}


class UnlikeFleet:
    """A service with a worker of an image, one of the same image with CUDA, and a device on another host.

    `start_other_image` adds a worker with another linker, which links for aarch64, too. Where this machine
    makes no namespaces, all run on one host, and each finds the CUDA of this machine, if it has any.
    """

    def __init__(self, folder: Path, database_url: str, ends: ExitStack) -> None:
        is_apart = not why_not()
        far = ends.enter_context(OtherHost(folder)) if is_apart else None
        common, cuda = "ld GNU ld 2.40", Image.make(folder / "cuda", "ld GNU ld 2.40", Cuda.name)
        gnu, lld = Image.make(folder / "gnu", common), Image.make(folder / "lld", "ld.lld LLD 19.1")
        there = "127.0.0.1" if far is None else far.there

        def on_far_host(words: list[str]) -> list[str]:
            return words if far is None else far.command(words)

        worker = [typed("worker", "--name", name) for name in NAMES]
        self.database = ends.enter_context(Database(database_url))
        self._late = on_far_host(lld.command(worker[2], is_apart))
        self.parts: Parts = ends.enter_context(
            started_by_hand(
                folder,
                [
                    *(typed(*part) for part in PARTS),
                    gnu.command(worker[0], is_apart),
                    on_far_host(cuda.command(worker[1], is_apart)),
                    on_far_host(typed("device", "--target", "local", "--host", there, "--name", "shared")),
                ],
                Client,
                workers=2,
                tracker_host="127.0.0.1" if far is None else OtherHost.here,
                MALLORN_DATABASE_URL=database_url,
                MALLORN_RPC_KEY=token_hex(32),
            )
        )

    def start_other_image(self) -> None:
        self.parts.start(self._late)

    def workers(self, client: Client) -> dict[str, WorkerStatus]:
        """The live workers, by the names of their images."""
        names = dict(zip((self.parts.pids[4], self.parts.pids[5], self.parts.pids[-1]), NAMES, strict=True))
        return {names[row.info.pid]: row for row in client.workers() if row.info.pid in names}


@pytest.fixture
def fleet(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[UnlikeFleet]:
    with ExitStack() as ends:
        yield UnlikeFleet(tmp_path, postgres_server.create("unlike"), ends)


def is_tuning(job: Job) -> bool:
    return job.refresh().state == JobState.TUNING


def has_measured(job: Job) -> bool:
    return any(row.state is RoundState.DONE for row in job.rounds())


def says(job: Job, *words: str) -> bool:
    return all(each in job.refresh().waiting_because for each in words)


def rounds_of(fleet: UnlikeFleet, job: Job) -> list[tuple[Round, int]]:
    """A job's rounds, each with its attempts."""
    query = select(Round, LeaseRow.attempt).where(Round.job_id == job.id)
    query = query.join(LeaseRow, LeaseRow.subject == Round.id.cast(LeaseRow.subject.type))
    with fleet.database.session() as session:
        rows = session.execute(query.where(LeaseRow.kind == WorkKind.ROUND)).all()
        return [(row[0], row[1]) for row in rows]


def finished_by(fleet: UnlikeFleet, job: Job) -> set[str]:
    query = select(StageRun.worker).where(StageRun.job_id == job.id, StageRun.kind == StageKind.FINISH)
    with fleet.database.session() as session:
        return set(session.scalars(query))


def builder_of(fleet: UnlikeFleet, job: Job) -> str | None:
    query = select(Context.built_by).join(JobRow, JobRow.context_id == Context.id)
    with fleet.database.session() as session:
        return session.scalar(query.where(JobRow.id == job.id))


def test_each_job_is_done_by_workers_that_fit_and_no_round_is_given_back(
    fleet: UnlikeFleet, networks: Path
) -> None:
    (networks / "wide.onnx").write_bytes(dense_network(width=96))
    with Client(fleet.parts.url) as client:
        submit = partial(client.submit, networks / "dense.onnx", round_size=4)
        (device,) = client.devices()
        first = submit(target=device.target, trials=12)
        arm = submit(target=ARM, trials=4, measurer="simulated")
        gpu = submit(target=GPU, trials=8)
        wait_for(seldom(partial(has_measured, first)), "a round of the first job", JOB_SEC)
        first.pause()
        lack = [f"{row.id} lacks zig for aarch64" for row in fleet.workers(client).values()]
        wait_for(seldom(partial(says, arm, *lack)), "the lack", 60)

        fleet.start_other_image()
        wait_for(seldom(lambda: "lld" in fleet.workers(client)), "the other image", JOB_SEC)
        second = client.submit(networks / "wide.onnx", target=device.target, trials=4, round_size=4)
        wait_for(seldom(partial(has_measured, second)), "a round of the second job", JOB_SEC)
        first.resume()
        for job in (first, second, arm):
            assert job.wait(JOB_SEC).state == JobState.DONE

        workers = fleet.workers(client)
        gnu, cuda, lld = (workers[name] for name in NAMES)
        assert builder_of(fleet, first) == gnu.info.builder == cuda.info.builder
        assert builder_of(fleet, second) == lld.info.builder != gnu.info.builder
        able = {first.id: {gnu.id, cuda.id}, second.id: {lld.id}, arm.id: {lld.id}}
        for job in (first, second, arm):
            returned = [event for event in job.events() if event.kind in ("round_returned", "stage_returned")]
            assert not returned
            rounds = rounds_of(fleet, job)
            assert {attempt for row, attempt in rounds if row.worker} == {1}, rounds
            done_by = {row.worker for row, _ in rounds if row.worker} | finished_by(fleet, job)
            assert done_by <= able[job.id]

        assert gpu.refresh().state == JobState.TUNING
        shown = mallorn("show", gpu.id, "--url", fleet.parts.url)
        assert "waits for a device for" in shown.stdout + shown.stderr
        assert '"arch":"sm_90"' in gpu.body["waiting_because"]
        assert rounds_of(fleet, gpu) == []
