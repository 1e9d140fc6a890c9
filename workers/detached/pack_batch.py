"""Make a batch: lease rounds or a job's last stage, build the candidates, pack one file."""

import ast
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from mallorn.core.errors import Conflict, InvalidRequest, MallornError, Unavailable
from mallorn.core.installation import IMPORT_ROOT
from mallorn.core.job_options import JobOptions, KeptOptions
from mallorn.core.registry import REGISTRY, list_kinds
from mallorn.core.states import Waiting, WorkKind
from mallorn.core.targets import Target
from mallorn.core.values.decision_log import RoundStats
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases, LeaseToken, WorkItem
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import Tasks
from mallorn.workers.detached import run_batch
from mallorn.workers.detached.batch_record import (
    LEASE_SEC,
    SentBatch,
    SentCall,
    SentRound,
    lease_holder_name,
    store_batch,
)
from mallorn.workers.device.detect_host import run_with_tvm
from mallorn.workers.device.device_kind import DeviceKind
from mallorn.workers.device.random_and_saved_arrays import checksum_inputs, load_arrays, save_arrays
from mallorn.workers.device.target_support import LLVM_PROGRAM, needed_flags, target_architecture
from mallorn.workers.finish.choose_winner import PASSES
from mallorn.workers.finish.final_candidates import Contest, select_final_candidates
from mallorn.workers.finish.numeric_check import RUN_TIMEOUT_SEC, SEED, Verifier
from mallorn.workers.hardware_probe.run import ensure_machine
from mallorn.workers.host.code_digest import TVM_VERSION
from mallorn.workers.host.host_lock import HostLock
from mallorn.workers.interfaces.device_runner import GRACE_SEC, Runner
from mallorn.workers.interfaces.tensor_arguments import FREE_RANGE, Arguments
from mallorn.workers.measure.build_candidates import Builds, BuiltCandidate
from mallorn.workers.measure.device_runs import must_flush_cache
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult, Program
from mallorn.workers.measure.run_timeout_and_retakes import Retakes, run_timeout_sec
from mallorn.workers.model_import.run import check_import
from mallorn.workers.process.lease_renewal import LeaseKeeper
from mallorn.workers.process.leased_work import leased_work, stage_folder, stage_of
from mallorn.workers.process.match_devices_and_builder import class_of_job, ensure_builder
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.round.propose import prepare_round
from mallorn.workers.round.run import Commits, close_round, fix_round_inputs
from mallorn.workers.round.store_referenced_rows import store_sketches
from mallorn.workers.sandbox.untrusted_files import open_plain, untrusted_folder
from mallorn.workers.subprocesses.errors import ChildError

KINDS: Final = "mallorn.kinds"
RULES: Final = tuple(REGISTRY["stopping"])  # run_batch.py has no rules of users
# run_batch.py holds these modules, and those that they import at their top.
ROOTS: Final = (
    *("mallorn.workers.detached.run_batch", "mallorn.workers.detached.batch_child"),
    *("mallorn.workers.device.slice_timer", "mallorn.workers.subprocesses.child_main"),
    "mallorn.workers.measure.stopping.adaptive",
)
MAIN: Final = "import sys\n\nfrom mallorn.workers.detached.run_batch import main\n\nsys.exit(main())\n"
MAKING_SEC: Final = 3600.0  # lease of a round while the batch's other rounds are built
BUILD_POLL_SEC: Final = 0.5
MOST_VALUES: Final = 65_536  # compared of one output
ENTRY_BYTES: Final = 500  # estimated size of a library's name and call in the file
MOST_FILE_BYTES: Final = 1 << 30  # of a file that a child process wrote
Plan = Callable[[Session, str], object]  # plans one more round of a job if possible


class Packing:
    """Makes one batch. On failure, the rounds or last stage that it leased are released."""

    def __init__(self, runtime: Runtime, job_id: str, limit_bytes: int) -> None:
        self._id = os.urandom(8).hex()
        runtime.name = lease_holder_name(self._id)
        self._runtime, self._job_id, self._database = runtime, job_id, runtime.database
        self._limit_bytes, self._bytes = limit_bytes, 0  # compressed
        self._files: dict[str, bytes] = {}
        self._calls: list[run_batch.Json] = []
        self._holds: list[LeaseToken] = []
        self._rounds: list[SentRound] = []
        self._passes: list[SentCall] = []
        self._checks: list[SentCall] = []
        with self._database.session() as session:
            self._job = job = Jobs(session).get(job_id, None)
            self._options: JobOptions = KeptOptions.model_validate(job.options)
            self._target = Target(Targets(session).get(job.target_id).text)
        if not self._options.is_detached:
            words = f"batches need --option measurer=detached, and job {job_id} has {self._options.measurer}"
            raise InvalidRequest(words, hint="mallorn tune MODEL --option measurer=detached")
        if self._options.stopping not in RULES:
            raise InvalidRequest(f"batches need a stopping rule of {', '.join(RULES)}")

    def pack(self, plan: Plan, file: Path) -> SentBatch:
        """Write the job's next batch to `file`, store its record, and keep the leases of
        its rounds or last stage until results come.

        Raises Conflict if nothing is left to measure, InvalidRequest for too low a limit.
        """
        try:
            return self._fill_and_write(plan, file)
        except BaseException:
            with self._database.transaction() as session:
                for hold in self._holds:
                    WorkItems(session).return_work(hold, Unavailable("the batch could not be made"))
            raise

    def _fill_and_write(self, plan: Plan, file: Path) -> SentBatch:
        check_import(self._runtime, ensure_builder(self._runtime, self._job))
        ensure_machine(self._runtime, self._job_id, measuring=False)
        fits = True
        while fits:
            with self._database.transaction() as session:
                queued = Rounds(session).queued(self._job_id)
                if not queued:
                    plan(session, self._job_id)
                    queued = Rounds(session).queued(self._job_id)
            if not queued:
                break
            fits = self._add_round(queued[0])
        if not self._calls and not queued:
            self._add_finish()
        with self._database.session() as session:
            job = Jobs(session).get(self._job_id, None)
            device_class = class_of_job(session, job)
        if not self._calls:
            because = job.waiting_because or "no round is open"
            words = f"job {job.id} ({job.state}) has nothing to measure now: {because}"
            raise Conflict(words, hint=f"mallorn show {job.id}")
        manifest = {
            "format": run_batch.FORMAT,
            "batch": self._id,
            "tvm": TVM_VERSION,
            "needs": target_requirements(self._target),
            "like": device_class,
            "files": {name: sha256(data).hexdigest() for name, data in self._files.items()},
            "calls": self._calls,
        }
        text = json.dumps(manifest).encode()
        batch = SentBatch(
            id=self._id,
            job_id=self._job_id,
            digest=sha256(text).hexdigest(),
            keys=tuple(call["key"] for call in self._calls),
            rounds=tuple(self._rounds),
            passes=tuple(self._passes),
            checks=tuple(self._checks),
        )
        (file.parent / "run_batch.py").write_bytes(zip_program(self._target))
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(file.parent / "run_batch.py", "run_batch.py")
            for name, data in {run_batch.MANIFEST: text, **self._files}.items():
                archive.writestr(name, data)
        store_batch(self._runtime.settings.artifacts, batch)
        with self._database.transaction() as session:
            for hold in self._holds:
                Leases(session).renew(hold, LEASE_SEC)
            because = f"batch {batch.id} awaits the results of {len(batch.keys)} runs"
            Jobs(session).set_waiting(self._job_id, Waiting(because, "mallorn batch take RESULTS"))
        return batch

    def _add_round(self, round_id: int) -> bool:
        """Build and add a round's candidates, or requeue the round and return False."""
        is_added: bool | None = None  # None: an error ended the work
        with leased_work(self._runtime, WorkItem.for_round(round_id), fix_round_inputs) as work:
            if work is None:
                return False
            context, (slots, proposals) = prepare_round(self._runtime, work.hold)
            slots_left = [slot for slot in slots if slot.slot not in context.done_slots]
            commits = Commits(self._database, context, work.hold, slots, proposals)
            limit_sec = run_timeout_sec(context.program, self._options, context.best_us)
            files, calls, build_ms = dict[str, bytes](), list[run_batch.Json](), dict[int, float]()
            group, best_us = context.program.key, context.best_us
            for end in self._build(work.lease, context.program, slots_left):
                if isinstance(end, MeasureResult):
                    commits.add(end)
                    continue
                key = f"{round_id}-{end.input.slot}"
                files[f"{key}.so"] = _check_child_file(end.artifact).read()
                build_ms[end.input.slot] = end.build_ms
                args = context.program.args.with_tensors(end.args)
                call = make_timing_call(
                    key, f"{key}.so", args, limit_sec, self._options, self._target, best_us
                )
                calls.append(call | {"group": group})
            commits.commit_all()
            if not calls:  # no candidate could be built
                close_round(self._runtime, context, work.hold, RoundStats(candidates=len(slots_left)))
                return True
            is_added = self._add_if_it_fits(files, calls)
            with self._database.transaction() as session:
                store_sketches(session, [slot.sketch for slot in slots])
                if not is_added:
                    Rounds(session).give_back(work.hold)
        if is_added:
            sent_round = SentRound(round_id=round_id, proposals=tuple(proposals), build_ms=build_ms)
            self._rounds.append(sent_round)
            self._extend_lease(work.hold)
        elif not self._calls:
            raise self._refuse("the first round", is_added)
        return bool(is_added)

    def _add_if_it_fits(self, files: dict[str, bytes], calls: list[run_batch.Json]) -> bool:
        """Add files and measurements, or return False if they would exceed the limit."""
        added_bytes = sum(len(zlib.compress(data)) + ENTRY_BYTES for data in files.values())
        if self._bytes + added_bytes > self._limit_bytes:
            return False
        self._bytes += added_bytes
        self._files |= files
        self._calls += calls
        return True

    def _refuse(self, subject: str, is_added: bool | None) -> MallornError:
        """Return the error for work that did not fit, or that failed if `is_added` is None."""
        if is_added is None:
            return Unavailable(f"{subject} failed; the log says why", hint=f"mallorn show {self._job_id}")
        limit = max(1, self._limit_bytes >> 20)
        return InvalidRequest(f"{subject} does not fit into {limit} MB", hint=f"--limit {2 * limit}M")

    def _extend_lease(self, hold: LeaseToken) -> None:
        """Extend a lease until the batch is made, since no thread renews it."""
        self._holds.append(hold)
        with self._database.transaction() as session:
            Leases(session).renew(hold, MAKING_SEC)

    def _build(
        self, lease: LeaseKeeper, program: Program, slots: Sequence[MeasureInput], any_size: bool = False
    ) -> Iterator[BuiltCandidate | MeasureResult]:
        """Build candidates as in any round; delete the libraries when iteration ends."""
        runtime, limit_sec = self._runtime, self._options.build_timeout_sec
        with untrusted_folder("build-", runtime.builder_folder) as folder, HostLock().hold_shared() as turn:
            builds = Builds(runtime.builders, slots, program, self._target, folder, limit_sec, any_size)
            try:
                while builds.has_unfinished:
                    lease.raise_if_lost()
                    turn.pause_if_requested(builds.pause, builds.go_on)
                    yield from builds.poll(BUILD_POLL_SEC)
            finally:
                builds.abort()

    def _add_finish(self) -> None:
        is_added: bool | None = None
        runtime, job_id = self._runtime, self._job_id
        with leased_work(runtime, WorkItem(WorkKind.FINISH, job_id)) as work:
            if work is None:
                return
            stage = stage_of(work)
            with self._database.session() as session:
                tasks = Tasks(session).list_with_workloads(job_id)
            files, calls = dict[str, bytes](), list[run_batch.Json]()
            with stage_folder(runtime, "finish-") as folder, stage.start_model_compiler(folder) as graphs:
                verifier = Verifier(runtime, self._target, graphs, folder)
                for task, workload in tasks:
                    contest = select_final_candidates(stage, task, workload)
                    candidates: list[BuiltCandidate] = []
                    for end in self._build(stage.lease, contest.program, contest.slots, any_size=True):
                        if isinstance(end, BuiltCandidate):
                            name = f"f{task.index}-{end.input.slot}.so"
                            files[name] = _check_child_file(end.artifact).read()
                            candidates.append(end)
                    limit_sec = self._options.run_timeout_sec
                    for turn, candidate in product(range(PASSES), candidates):
                        slot, args = candidate.input, contest.program.args.with_tensors(candidate.args)
                        name = f"f{task.index}-{slot.slot}"
                        key, library = f"{name}-{turn}", f"{name}.so"
                        calls.append(
                            make_timing_call(key, library, args, limit_sec, self._options, self._target)
                        )
                        self._passes.append(
                            SentCall(key=key, workload=contest.program.key, candidate=slot.candidate.key)
                        )
                    self._add_checks(files, calls, contest, verifier)
            is_added = self._add_if_it_fits(files, calls)
        if stage is not None and is_added:
            self._extend_lease(stage.hold)
        elif stage is not None:
            with self._database.transaction() as session:
                Leases(session).return_work(stage.hold)
            raise self._refuse("the batch of the last stage", is_added)

    def _add_checks(
        self, files: dict[str, bytes], calls: list[run_batch.Json], contest: Contest, verifier: Verifier
    ) -> None:
        """Add a numeric check of each finalist that can be built as a whole program."""
        program, index = contest.program, contest.task.index
        reference = verifier.write_reference(program)
        inputs, outputs = (
            list(load_arrays(_check_child_file(verifier.file(program, content))).values())
            for content in ("inputs", "expected")
        )
        files[f"f{index}-expected.npz"] = pack_expected_outputs(outputs, reference.outputs)
        check = {
            "args": program.args.with_full_byte_range().describe_draws(FREE_RANGE, reference.floats),
            "seed": SEED,
            "inputs": checksum_inputs(inputs, reference.outputs),
            "expected": f"f{index}-expected.npz",
            "reference": asdict(reference),
            "timeout_sec": RUN_TIMEOUT_SEC,
        }
        for slot in contest.slots:
            with suppress(ChildError):
                if verifier.build(program, slot) is None:
                    continue
                key, limit_sec = f"f{index}-{slot.slot}-check", RUN_TIMEOUT_SEC + GRACE_SEC
                files[f"{key}.so"] = _check_child_file(verifier.library(program)).read()
                calls.append({"key": key, "library": f"{key}.so", "check": check, "limit_sec": limit_sec})
                self._checks.append(SentCall(key=key, workload=program.key, candidate=slot.candidate.key))


def make_timing_call(
    key: str,
    library: str,
    args: Arguments,
    limit_sec: float,
    options: JobOptions,
    target: Target,
    best_us: float | None = None,
) -> run_batch.Json:
    """Return a call that times a library, with the parameters of a worker's runner."""
    flush_l2 = "on" if must_flush_cache(options.evaluator, args, target) else "off"
    call = Runner.time_candidate.make_call(
        tracker="",
        target=target.text,
        artifact=library,
        args=args,
        evaluator=options.evaluator.model_copy(update={"flush_l2": flush_l2}),
        stopping=options.stopping,
        candidate_key=key,
        timeout_sec=limit_sec,
        patience_sec=Retakes(options.evaluator).left_sec(),
        best_us=best_us,
    )
    limit_sec = call.limit_sec + GRACE_SEC  # also for making the arguments
    return {"key": key, "library": library, "timing": json.loads(call.params), "limit_sec": limit_sec}


def zip_program(target: Target) -> bytes:
    """Return run_batch.py: a zip that Python runs, of the modules that it and its child import."""
    modules: dict[str, str] = {}
    own_part = target.hardware.parts.get(DeviceKind.__name__, "").partition(":")[0]
    for root in (*ROOTS, *(type(kind).__module__ for kind in list_kinds()), *filter(None, [own_part])):
        _collect_imports(root, modules)
    folders = {Path(name).parent for name in modules}
    data = {name for folder in folders for name in (IMPORT_ROOT / folder).glob("*.toml")}
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", MAIN)
        for file_path in sorted(data):
            archive.write(file_path, str(file_path.relative_to(IMPORT_ROOT)))
        for name, text in sorted(modules.items()):
            archive.writestr(name, text)
    return file.getvalue()


def _collect_imports(module: str, found: dict[str, str]) -> None:
    """Add the files of a module, of its packages, and of what it imports when it is imported."""
    path = module.replace(".", "/")
    name = f"{path}.py" if (IMPORT_ROOT / f"{path}.py").is_file() else f"{path}/__init__.py"
    if name in found or not (IMPORT_ROOT / name).is_file():
        return
    # Importing any module runs its packages. Only the outermost, for users, imports other parts.
    text = found[name] = "" if module == "mallorn" else (IMPORT_ROOT / name).read_text()
    _collect_imports(module.rpartition(".")[0], found)
    tree = ast.parse(text)
    # The classes of kinds of hardware import in their methods what needs a driver.
    for line in ast.walk(tree) if module.startswith(f"{KINDS}.") else tree.body:
        if isinstance(line, ast.ImportFrom) and line.module is not None:
            for imported in (line.module, *(f"{line.module}.{alias.name}" for alias in line.names)):
                _collect_imports(imported, found)


def target_requirements(target: Target) -> run_batch.Json:
    """Return what a target's libraries require of a machine; by LLVM's names, CPU flags."""
    machine, flags = target_architecture(target) or os.uname().machine, dict[str, str]()
    if target.kind == "llvm":
        answer = run_with_tvm(LLVM_PROGRAM, target.text)
        features = json.loads(answer.stdout.splitlines()[-1])["features"] if answer.returncode == 0 else []
        flags = needed_flags(target, features, machine)
    return {"target": target.text, "machine": machine, "flags": flags}


def pack_expected_outputs(answers: Sequence[Any], outputs: Sequence[int], limit: int = MOST_VALUES) -> bytes:
    """Return the expected outputs as an npz file for `compare_arrays`. Of a large output,
    at most `limit` random values are kept, with their places."""
    arrays: dict[str, NDArray[Any]] = {}
    for index in outputs:
        values = answers[index]
        if values.size > limit:
            places = np.unique(np.random.default_rng(SEED).integers(0, values.size, limit))
            arrays[f"places_{index}"], values = places, values.reshape(-1)[places]
        arrays[f"arg_{index}"] = values
    file = BytesIO()
    save_arrays(file, arrays)
    return file.getvalue()


def _check_child_file(path: Path) -> Any:
    """Read a file that a child wrote. Raises TamperedFile if it is not a plain file."""
    with open_plain(path.parent, path.name, MOST_FILE_BYTES) as file:
        return BytesIO(file.read())
