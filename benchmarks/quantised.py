"""Networks in 8 bits: our int8 beside our float32, and beside other engines on the same quantised file.

python -m benchmarks.quantised FOLDER [NAME ...] --work DIR [--trials 0] [--threads 2 1] [--samples 8]
                               [--python PYTHON] [--rivals openvino_cpu] [--raw docs/results/int8]

FOLDER holds ONNX files of float32 numbers with fixed shapes. Each is quantised as `mallorn quantize` does it,
by random samples; it and the quantised one are a job each. Then engines take turns of some 150 ms, each in a
process of its own that is stopped while another runs: ours on both files, onnxruntime on both, and rivals,
from the interpreter PYTHON, on the quantised one. Errors are against onnxruntime in float32, on inputs that
the quantiser did not see. DIR keeps files and schedules, and --raw a file for each network and number of
threads: a second run makes what is missing. The headline is the geometric mean of our float32 over our int8.
"""

import argparse
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.cells import Cells
from benchmarks.fresh import fresh_stack
from benchmarks.hosts import describe_host
from benchmarks.latency import compared, loaded, rivals_of
from benchmarks.model_folder import files_of, folder_parser
from benchmarks.quantised_report import FLOAT, INT8, RIVAL, RIVAL_FLOAT, Cell, table
from benchmarks.rival import NAMES, Rival
from cli.quantize_model import quantised
from cli.schedule_directory import local_model, read_exported
from cli.service.connect_or_start_stack import wait_for_device
from workers.interfaces.model_compiler import ModelCompiler
from workers.interfaces.whole_model_engine import Engine

RAW: Final = Path("docs/results/int8")


@dataclass(frozen=True)
class Network:
    """A network's two files, and the schedules of each."""

    real: Path
    work: Path

    @property
    def name(self) -> str:
        return self.real.stem

    @property
    def bytes_(self) -> Path:
        return self.work / f"{self.name}.int8.onnx"

    def schedules(self, trials: int, label: str) -> Path:
        return self.work / f"{self.name}-{label}-{trials}"


def main() -> None:
    """Quantise, tune and time what is missing, and print the table."""
    args = _arguments()
    cells = Cells(args.raw)
    files = list(files_of(args))
    if not files:
        sys.exit(f"no such .onnx files in {args.folder}")
    args.work.mkdir(parents=True, exist_ok=True)
    networks = [Network(path, args.work) for path in files]
    named = {
        (each, count): f"{each.name}_{args.trials}_{count}" for each in networks for count in args.threads
    }
    missing = {key: name for key, name in named.items() if name not in cells}
    _tune(dict.fromkeys(each for each, _ in missing), args)
    for (network, threads), name in missing.items():
        cells.keep(name, _measured(network, threads, args) | describe_host())
        print(f"{network.name}, {threads} threads: done", flush=True)
    print(table([Cell.of(cells[name]) for name in named.values()]))


def _tune(networks: Mapping[Network, None], args: argparse.Namespace) -> None:
    """What has no schedules yet; jobs end before anything is timed."""
    labels = [(each, label) for each in networks for label in (FLOAT, INT8)]
    missing = [(each, label) for each, label in labels if not each.schedules(args.trials, label).is_dir()]
    if not missing:
        return
    with fresh_stack(args.work / "data") as stack:
        wait_for_device(stack)
        for network, label in missing:
            if label == INT8 and not network.bytes_.is_file():
                _quantise(network, args)
            job = stack.api.tune(network.bytes_ if label == INT8 else network.real, trials=args.trials).wait()
            job.raise_for_state()
            job.schedules(network.schedules(args.trials, label))


def _quantise(network: Network, args: argparse.Namespace) -> None:
    ranges = read_exported(network.schedules(args.trials, FLOAT), None).manifest.input_ranges
    samples = network.work / f"{network.name}.npz"
    with ModelCompiler() as graphs:
        drawn = []
        for seed in range(1, args.samples + 1):  # 0 is what engines are given
            graphs.make_inputs(str(network.real), str(samples), seed, {}, ranges)
            with np.load(samples) as file:
                drawn.append(dict(file))
    np.savez(
        samples,
        allow_pickle=False,
        **{name: np.concatenate([one[name] for one in drawn]) for name in drawn[0]},
    )
    quantised(network.real, samples, network.bytes_)


def _measured(network: Network, threads: int, args: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        engines: dict[str, Engine | Rival] = {}
        for file, label, rival in ((network.real, FLOAT, RIVAL_FLOAT), (network.bytes_, INT8, RIVAL)):
            exported = read_exported(network.schedules(args.trials, label), None)
            whole = replace(stack.enter_context(local_model(file, exported, threads)), room=None)
            library = whole.folder / "tuned.so"
            whole.compile(exported.directory.absolute(), library)
            engines |= {
                label: loaded(stack, whole, label, library),
                rival: loaded(stack, whole, rival, None),
            }
        bytes_, inputs = network.bytes_.absolute(), str(whole.inputs)
        held, left_out = rivals_of(args.rivals, args.python, bytes_, inputs, threads, stack)
        return {
            "model": network.name,
            "threads": threads,
            "trials": args.trials,
            **compared(engines | held, whole, RIVAL_FLOAT),
            "left_out": left_out,
        }


def _arguments() -> argparse.Namespace:
    parser = folder_parser(__doc__)
    parser.add_argument("--work", type=Path, required=True, help="where files and schedules are kept")
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 1])
    parser.add_argument("--samples", type=int, default=8, help="sets of inputs that the quantiser sees")
    parser.add_argument("--python", nargs="+", default=[sys.executable], metavar="PYTHON")
    parser.add_argument("--rivals", nargs="*", default=["openvino_cpu"], choices=NAMES)
    parser.add_argument("--raw", type=Path, default=RAW)
    return parser.parse_args()


if __name__ == "__main__":
    main()
