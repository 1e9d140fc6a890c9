"""Jobs as an import leaves them: tasks of one program under distinct workload keys."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.scale.devices import HOST_CLASS, THREADS, TVM_VERSION, identity_of
from benchmarks.scale.measurer import NAME
from mallorn.core.job_options import JobOptions, SimulatedOptions
from mallorn.core.states import JobState
from mallorn.core.targets import parse_target
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.db.repositories.devices import Devices, MachineKey, SeenDevice
from mallorn.db.repositories.jobs import Jobs, NewJob
from mallorn.db.repositories.stored_files import Models
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.workloads import NewWorkload, Workloads
from mallorn.db.session import Database
from mallorn.workers.host.code_digest import code_digest, current_code_name
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor, pack_arguments

OWNER: Final = "local"  # the owner of requests without a key
MODEL: Final = "5" * 64
SIZE: Final = 512
TRIALS: Final = 10_000_000  # more than any run measures
LANES: Final = 16


def target_texts(count: int) -> list[str]:
    """Return this many different targets of CPUs."""
    return [parse_target({"kind": "llvm", "num-cores": cores}).text for cores in range(2, 2 + count)]


def matrix_product() -> NewWorkload:
    """Return a matrix product as a workload; its design space has far more candidates than a run needs."""
    import tvm
    from tvm import te

    left, right = (te.placeholder((SIZE, SIZE), name=name) for name in "AB")
    axis = te.reduce_axis((0, SIZE), name="k")
    product = te.compute((SIZE, SIZE), lambda i, j: te.sum(left[i, axis] * right[axis, j], axis=axis))
    module = tvm.IRModule({"main": te.create_prim_func([left, right, product])})
    tensor = Tensor("TENSOR", "float32", (SIZE, SIZE))
    args = pack_arguments(Arguments((tensor, tensor, tensor), outputs=(2,)))
    features = {"extents": [SIZE, SIZE, SIZE]}
    tir = str(tvm.ir.save_json(module))
    flops = 2.0 * SIZE**3
    return NewWorkload("matmul", "matmul", "matmul", "scale", flops, tir, args, features, TVM_VERSION)


def add_devices(database: Database, targets: list[str], count: int) -> None:
    """Store the devices, with a machine that nobody needs to measure, before they register."""
    with database.transaction() as session:
        ids = [Targets(session).ensure(parse_target(text)).id for text in targets]
        for number in range(count):
            described = identity_of(number, targets[number % len(targets)])
            del described["target"]
            device = SeenDevice(target_id=ids[number % len(ids)], **described)  # type: ignore[arg-type]
            Devices(session).record_seen(device)
        machine, builder = assume_typical_cpu(THREADS, LANES), current_code_name()
        for target_id in ids:
            key = MachineKey(target_id, HOST_CLASS, TVM_VERSION, THREADS)
            Devices(session).store_machine(key, machine, "", builder)


def job_options(seed: int, candidate_sec: float) -> JobOptions:
    """Return the options of a job whose candidates each occupy a simulated device so long.

    Its policy gives rounds to tasks from which nothing more is expected, as after a year.
    """
    simulated = SimulatedOptions(seed=seed, device_sec=candidate_sec)
    return JobOptions(measurer=NAME, policy="round-robin", simulated=simulated)


def new_workloads(database: Database, program: NewWorkload, count: int) -> list[int]:
    """Store the program under `count` new keys; return the ids."""
    names = [f"scale-{secrets.token_hex(8)}" for _ in range(count)]
    with database.transaction() as session:
        ids = Workloads(session).ensure_many([replace(program, key=name, name=name) for name in names])
    return [ids[name] for name in names]


def add_job(database: Database, target: str, workloads: Sequence[int], options: JobOptions) -> str:
    """Store a job that tunes these workloads, as its import leaves it; return its id."""
    with database.transaction() as session:
        Models(session).add(MODEL, OWNER, "scale", 10)
        target_id = Targets(session).ensure(parse_target(target)).id
        stored_options = options.model_dump(mode="json")
        new = NewJob(OWNER, "scale", MODEL, target_id, TRIALS, None, 0, stored_options)
        job, _ = Jobs(session).create(new)
        tasks = [NewTask(index, f"task {index}", 1, workload) for index, workload in enumerate(workloads)]
        Tasks(session).add_many(job.id, tasks)
        graph = {"recipe": {"name": "tuned"}, "inputs": [], "outputs": [], "code": code_digest()}
        Jobs(session).store_report_columns(job.id, graph=graph)
        Jobs(session).bind_machine(job.id, assume_typical_cpu(THREADS, LANES))
        Jobs(session).move_to_state(job.id, [JobState.QUEUED], JobState.TUNING)
        return job.id
