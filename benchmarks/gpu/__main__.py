"""Time kernels and models on a GPU that is available for minutes; build all before.

    python -m benchmarks.gpu prepare --out build/gpu
    python -m benchmarks.gpu part 1 --transfer build/gpu/send/1 --home HOME --seconds 200 --out DIR
    python -m benchmarks.gpu part 2 --transfer build/gpu/send/2 ... --home HOME --seconds 540 --out DIR
    python -m benchmarks.gpu part 3 --transfer build/gpu/send/5 ... --home HOME --seconds 540 --out DIR
    python -m benchmarks.gpu part 4 --home HOME --seconds 540 --out DIR [--earlier FILE]
    python -m benchmarks.gpu report DIR
    python -m benchmarks.gpu record FILE ... --out RECORDING
    python -m benchmarks.gpu rehearse --json FILE

`prepare` runs on this machine, and `part` on the machine with the GPU, which has no network, and Python
with numpy, onnx and torch. A part needs the folder `benchmarks` of this checkout. It unpacks the given
transfers into HOME, and resumes where its last run ended or was killed.
"""

import argparse
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from benchmarks.gpu.device import CPU, CUDA
from benchmarks.gpu.unpack import environment, unpack

INSIDE: Final = "GPU_PARTS_HOME"  # variable set in processes run from the transfers


def main() -> None:
    """Run the command named on the command line."""
    options = _arguments()
    if options.command == "prepare":
        from benchmarks.gpu.prepare import prepare

        prepare(options)
    elif options.command == "rehearse":
        from benchmarks.gpu.rehearse import main as rehearse

        rehearse(options.out, options.json)
    elif options.command == "record":
        from benchmarks.gpu.recording import record

        sys.stdout.write(record(options.files, options.out, options.data) + "\n")
    elif options.command == "report":
        from benchmarks.gpu.report import report

        sys.stdout.write(report(options.folder))
    elif os.environ.get(INSIDE):
        _run_part(options)
    else:
        unpack(options.transfer, options.home)
        inside = environment(options.home) | {INSIDE: str(options.home)}
        command = [sys.executable, "-m", "benchmarks.gpu", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=inside, check=False).returncode)


def _run_part(options: argparse.Namespace) -> None:
    from mallorn.stack.supervised_process import DieWithParent

    DieWithParent(signal.SIGKILL, os.getppid())()
    part = import_module(f"benchmarks.gpu.part{options.number}")  # some parts do without TVM's compiler
    options.out.mkdir(parents=True, exist_ok=True)
    if options.earlier:
        part.take_earlier(options.earlier, options.home)
    part.run(options.device, options.home, options.out, options.seconds, dict(os.environ))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="build kernels, and pack what travels")
    prepare.add_argument("--out", type=Path, default=Path("build/gpu"))
    prepare.add_argument("--target", default="nvidia/nvidia-h100")
    prepare.add_argument("--python", default="3.12", help="version of Python on the other machine")
    prepare.add_argument("--tasks", choices=("gpu", "rehearsal"), default="gpu")
    prepare.add_argument("--searched", type=int, default=125, help="trials of each search of part 3; 0: none")
    prepare.add_argument(
        "--searched-seconds", type=float, default=3600.0, help="of building libraries of part 3, in all"
    )
    prepare.add_argument("--chance", type=int, default=6, help="kernels by chance of each task")
    prepare.add_argument("--build-seconds", type=float, default=1800.0, help="of building kernels, in all")
    prepare.add_argument("--kernel-seconds", type=float, default=120.0, help="of building one kernel")
    prepare.add_argument("--kernels-mb", type=float, default=16.0, help="of kernels, in all")
    prepare.add_argument(
        "--transfer-mb", type=float, default=67.0, help="of one transfer, with this checkout's tracked files"
    )
    prepare.add_argument("--preset", type=int, choices=range(10), default=9, help="of the compression")
    part = commands.add_parser("part", help="measure on the machine with the GPU")
    part.add_argument("number", type=int, choices=(1, 2, 3, 4))
    part.add_argument("--transfer", type=Path, nargs="*", default=[], help="folders of the transfers here")
    part.add_argument("--home", type=_absolute, required=True, help="a folder that stays between calls")
    part.add_argument("--out", type=_absolute, required=True, help="a folder for the results")
    part.add_argument("--seconds", type=float, required=True)
    part.add_argument("--earlier", type=_absolute, help="archive of an earlier stretch of part 3 or 4")
    part.add_argument("--device", choices=(CUDA, CPU), default=CUDA)
    rehearse = commands.add_parser("rehearse", help="run the parts here, on the processor")
    rehearse.add_argument("--out", type=Path, default=Path("build/gpu-rehearsal"))
    rehearse.add_argument("--json", type=Path, help="a file for sizes, seconds and cells")
    record = commands.add_parser("record", help="turn trials into a recording or rows of a dataset")
    record.add_argument("files", type=Path, nargs="+", help="files of trials")
    record.add_argument("--out", type=Path, help="the recording to write")
    record.add_argument("--data", type=Path, help="a data directory, whose dataset gets the trials")
    report = commands.add_parser("report", help="print tables of the results")
    report.add_argument("folder", type=Path)
    return parser.parse_args()


def _absolute(text: str) -> Path:
    return Path(text).absolute()


if __name__ == "__main__":
    main()
