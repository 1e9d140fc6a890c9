"""Whole jobs for boards of AArch64, whose devices are emulated, from this machine's workers.

python -m benchmarks.boards [NAME ...] [--boards dotprod i8mm] [--trials 32] [--raw docs/results/boards]

Each network of `benchmarks.boards.networks` is a job for each board: import, rounds, finish, and the whole
model's outputs beside onnxruntime's. Then the board compiles the exported schedules anew with stock TVM
and compares there (`apply.py MODEL --check`), and the exported schedules' assembly is read here. A finished
job is one raw file; a second run adds what is missing. The headline is the share of candidates that built
at their first try. Times under an emulator say nothing, so none is kept.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.boards.assembly import describe_kernels
from benchmarks.boards.networks import NETWORKS
from benchmarks.boards.packages import unpacked_wheels
from benchmarks.cells import Cells
from benchmarks.fresh import fresh_stack
from benchmarks.hosts import describe_host
from mallorn.client.coordinator_client import Client
from mallorn.client.job import Job
from mallorn.core.errors import MallornError
from mallorn.core.outcomes import Outcome
from mallorn.stack.data_directory import DataDir
from mallorn.workers.host.linker import find_zig
from tests.fixtures.emulated import AARCH64, emulated_device, emulated_environment, emulated_python

PROXY: Final = Path(__file__).parent / "proxy"
RAW: Final = Path("docs/results/boards")
VERBATIM: Final = argparse.RawDescriptionHelpFormatter
_COMMON: Final = ("+neon", "+dotprod", "+fullfp16")
#: Instructions of each board, and the processor that is emulated.
BOARDS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "dotprod": (_COMMON, "neoverse-n1"),
    "i8mm": ((*_COMMON, "+i8mm", "+bf16"), "max"),
}


def main() -> None:
    """Run the jobs that have no raw file yet, and print a line of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=VERBATIM)
    parser.add_argument("names", nargs="*", choices=(*NETWORKS, []), metavar="NAME", help="all by default")
    parser.add_argument("--boards", nargs="+", choices=BOARDS, default=list(BOARDS))
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--raw", type=Path, default=RAW)
    args = parser.parse_args()
    cells, wanted = Cells(args.raw), args.names or list(NETWORKS)
    for board in args.boards:
        if missing := [name for name in wanted if f"{name}_{board}" not in cells]:
            with tempfile.TemporaryDirectory(prefix="boards-") as folder:
                _run_jobs(board, missing, args.trials, Path(folder), cells)
    for name in wanted:
        for board in args.boards:
            print(_line(name, board, cells[f"{name}_{board}"]))


def target_of(board: str) -> dict[str, Any]:
    """Return the target that names no processor, only its instructions."""
    return {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": [*BOARDS[board][0]], "num-cores": 1}


def _run_jobs(board: str, names: list[str], trials: int, folder: Path, cells: Cells) -> None:
    target, cpu = target_of(board), BOARDS[board][1]
    (folder / "board").mkdir()
    with fresh_stack(folder / "data") as stack:
        data = DataDir(folder / "data")
        running, key = data.read_stack(), (data.path / "rpc.key").read_text()
        assert running is not None
        words = ["--target", json.dumps(target), "--tracker", running.tracker, "--name", board]
        with emulated_device(words, folder / "board", key, cpu) as device:
            _wait_until_it_joined(stack.api, device, folder / "board" / "device.log")
            for name in names:
                result = _run_job(stack.api, name, target, trials, folder / f"{name}.onnx", cpu)
                cells.keep(f"{name}_{board}", {"network": name, "board": board, **result, **describe_host()})
                print(_line(name, board, result), flush=True)


def _wait_until_it_joined(api: Client, device: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait for the device; exit with what it said if it ends."""
    while not any(listed.info.machine == "aarch64" for listed in api.devices()):
        if device.poll() is not None:
            sys.exit(f"the emulated device ended: {log.read_text()[-2000:]}")
        time.sleep(0.5)


def _run_job(
    api: Client, name: str, target: dict[str, Any], trials: int, path: Path, cpu: str
) -> dict[str, Any]:
    network = NETWORKS[name]
    network.write(path)
    job = api.submit(path, target=target, trials=trials, **network.options)
    job.wait()
    try:
        job.raise_for_state()
    except MallornError as error:
        return {"target": target, "refused": error.message}
    report = job.body["report"]
    exported = job.fetch(path.with_suffix(""))
    outcomes = _outcomes(api, job)
    return {
        "target": target,
        "cpu": cpu,
        "outcomes": outcomes,
        "built_at_first_try": _share_built(outcomes),
        "error_vs_onnxruntime": report["error_vs_onnxruntime"],
        "skipped_steps": report["skipped_steps"],
        "stock_tvm": _apply_on_board(exported, path, cpu),
        "kernels": describe_kernels(exported, json.dumps(target)),
    }


def _outcomes(api: Client, job: Job) -> dict[str, int]:
    records = [record for record in api.records(job=job.id) if record.kind == "trial"]
    return dict(Counter(str(record.outcome) for record in records))


def _share_built(outcomes: Mapping[str, int]) -> float | None:
    failed = sum(outcomes.get(outcome, 0) for outcome in (Outcome.BUILD_ERROR, Outcome.BUILD_TIMEOUT))
    total = sum(outcomes.values())
    return 1 - failed / total if total else None


def _apply_on_board(exported: Path, model: Path, cpu: str) -> dict[str, Any]:
    """Compile with the exported schedules on the board by stock TVM, and compare with onnxruntime there."""
    compiler = model.with_name("compiler")
    compiler.write_text(f'#!/bin/sh\nexec {find_zig()} c++ -target aarch64-linux-gnu.2.28 "$@"\n')
    compiler.chmod(0o755)
    environment = emulated_environment(CXX=str(compiler), NATIVE_PYTHON=sys.executable)
    packages = PROXY, unpacked_wheels(), AARCH64
    environment["PYTHONPATH"] = os.pathsep.join(map(str, packages))
    command = [emulated_python(cpu), exported / "apply.py", model, "--check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr[-2000:]}
    report = dict(json.loads(done.stdout.splitlines()[-1]))
    return {name: report[name] for name in ("workloads_found", "workloads", "relative_error")}


def _line(name: str, board: str, result: Mapping[str, Any]) -> str:
    if "refused" in result:
        return f"{name} {board}: {result['refused']}"
    kernels = result["kernels"]
    spills = sum(kernel["spills"] for kernel in kernels)
    return (
        f"{name} {board}: error {result['error_vs_onnxruntime']:.1e}, outcomes {result['outcomes']}, "
        f"stock TVM {result['stock_tvm']}, {spills} spills in {len(kernels)} kernels"
    )


if __name__ == "__main__":
    main()
