"""What a batch brings home is stored as a device's own times are."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.disturbance import Disturbance
from mallorn.workers.detached.batch_record import CallResult, SentCall
from mallorn.workers.detached.commit_batch_results import CarriedTimes
from mallorn.workers.detached.pack_batch import make_timing_call, zip_program
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.interfaces.tensor_arguments import Arguments, Tensor
from mallorn.workers.measure.measurer_interface import MeasureInput, Program

GPU = parse_target({"kind": "cuda", "arch": "sm_90a"})
CPU = parse_target({"kind": "llvm", "num-cores": 2})
HERE = Endpoint("batch:node7", "h", "c", 8, "0.27")
BUSY = {
    "candidates": 1,
    "upper_bounds": 1,
    "valid_sec": 0.1,
    "repeated_sec": 2.0,
    "other_programs": 3.0,
    "cores": 8,
    "has_priority": False,
    "gpu": "",
}


def product(rows: int) -> Arguments:
    shapes = (rows, 4096), (4096, 4096), (rows, 4096)
    return Arguments(tuple(Tensor("TENSOR", "float16", shape) for shape in shapes), outputs=(2,))


@pytest.mark.parametrize(("target", "rows", "cold"), [(GPU, 1, True), (GPU, 4096, False), (CPU, 1, False)])
def test_a_cache_is_emptied_by_the_rule_of_devices(target: Target, rows: int, cold: bool) -> None:
    options = JobOptions.model_validate({"measurer": "detached"})
    call = make_timing_call("1-0", "1-0.so", product(rows), 5.0, options, target)
    assert (call["timing"]["evaluator"]["flush_l2"] == "on") is cold


def test_a_disturbed_time_is_a_bound_at_home() -> None:
    result = CallResult.model_validate(
        {"key": "a", "outcome": "ok", "run_us": [2.0], "disturbed": 0.4, "disturbance": BUSY}
    )
    candidate = Candidate("s", ())
    slot = MeasureInput(0, candidate, Sketch("s", "[]", ()))
    sent = SentCall(key="a", workload="p", candidate=candidate.key)
    times = CarriedTimes([sent], {"a": result}, HERE)
    [told] = times.measure_in_passes(Program("p", "", Arguments(()), 1.0), CPU, [slot], JobOptions(), 1)
    assert (told.trial.is_bound, told.trial.time_us, told.trial.latency_us) == (True, None, 2.0)
    assert told.disturbance is not None
    assert told.disturbance.description == Disturbance(**BUSY).description != ""


def test_a_batch_brings_all_that_its_modules_import(tmp_path: Path) -> None:
    """Without pydantic, SQLAlchemy and the rest of Mallorn, as on the other machine."""
    program = (
        "import importlib, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "sys.modules.update(dict.fromkeys(('pydantic', 'sqlalchemy', 'httpx', 'onnx', 'psutil')))\n"
        "for name in sys.argv[2:]:\n"
        "    module = importlib.import_module(name)\n"
        "    assert module.__file__.startswith(sys.argv[1]), module.__file__\n"
    )
    archive = tmp_path / "run_batch.py"
    archive.write_bytes(zip_program(parse_target({"kind": "llvm", "num-cores": 1})))
    files = [Path(name) for name in zipfile.ZipFile(archive).namelist()]
    ours = [file for file in files if file.suffix == ".py" and file.stem not in ("__init__", "__main__")]
    modules = [".".join(file.with_suffix("").parts) for file in ours]
    subprocess.run([sys.executable, "-P", "-c", program, str(archive), *modules], cwd=tmp_path, check=True)
