"""Latency of 8-bit networks: our int8 against our float32 and against other engines.

python -m benchmarks.quantised FOLDER [NAME ...] --work DIR [--trials 0] [--threads 2 1] [--samples 8]
                               [--python PYTHON] [--rivals openvino_cpu] [--raw docs/results/int8]

FOLDER holds ONNX files in float32 with fixed shapes. Each is quantised as by
examples/quantize.py, on random samples; both files are a job each. Then engines take turns of some 150 ms
in their own processes, stopped while another runs: ours and onnxruntime on both files, and
rivals on the quantised one, with inputs that the quantiser did not see. DIR keeps files and
schedules, --raw one file per network and number of threads: a second run adds missing ones.
The headline is our float32 latency over our int8 latency, a geometric mean.
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
from mallorn.cli.schedule_directory import local_model, read_schedule_directory
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn_research.commands.wait_until_tuned import wait_for_device

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from quantize_model import write_quantised_model

RAW: Final = Path("docs/results/int8")


@dataclass(frozen=True)
class Network:
    """Paths of a network's float32 and quantised files and of their schedules."""

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
    """Quantise, tune and time all missing cells, and print the table."""
    args = _arguments()
    cells = Cells(args.raw)
    files = list(files_of(args))
    if not files:
        sys.exit(f"no such .onnx files in {args.folder}")
    args.work.mkdir(parents=True, exist_ok=True)
    networks = [Network(path, args.work) for path in files]
    cell_names = {
        (each, count): f"{each.name}_{args.trials}_{count}" for each in networks for count in args.threads
    }
    missing = {key: name for key, name in cell_names.items() if name not in cells}
    _tune(dict.fromkeys(each for each, _ in missing), args)
    for (network, threads), name in missing.items():
        cells.keep(name, _measure(network, threads, args) | describe_host())
        print(f"{network.name}, {threads} threads: done", flush=True)
    print(table([Cell.of(cells[name]) for name in cell_names.values()]))


def _tune(networks: Mapping[Network, None], args: argparse.Namespace) -> None:
    """Tune files that have no schedules; all jobs end before engines are timed."""
    labels = [(each, label) for each in networks for label in (FLOAT, INT8)]
    missing = [(each, label) for each, label in labels if not each.schedules(args.trials, label).is_dir()]
    if not missing:
        return
    with fresh_stack(args.work / "data") as stack:
        wait_for_device(stack)
        for network, label in missing:
            if label == INT8 and not network.bytes_.is_file():
                _quantise(network, args)
            job = stack.api.submit(
                network.bytes_ if label == INT8 else network.real, trials=args.trials
            ).wait()
            job.raise_for_state()
            job.schedules(network.schedules(args.trials, label))


def _quantise(network: Network, args: argparse.Namespace) -> None:
    ranges = read_schedule_directory(network.schedules(args.trials, FLOAT), None).manifest.input_ranges
    samples = network.work / f"{network.name}.npz"
    with ModelCompiler() as graphs:
        inputs = []
        for seed in range(1, args.samples + 1):  # engines get inputs of seed 0
            graphs.make_inputs(str(network.real), str(samples), seed, {}, ranges)
            with np.load(samples) as file:
                inputs.append(dict(file))
    np.savez(
        samples,
        allow_pickle=False,
        **{name: np.concatenate([one[name] for one in inputs]) for name in inputs[0]},
    )
    write_quantised_model(network.real, samples, network.bytes_)


def _measure(network: Network, threads: int, args: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        engines: dict[str, Engine | Rival] = {}
        for file, label, rival in ((network.real, FLOAT, RIVAL_FLOAT), (network.bytes_, INT8, RIVAL)):
            exported = read_schedule_directory(network.schedules(args.trials, label), None)
            whole = replace(stack.enter_context(local_model(file, exported, threads)), room=None)
            library = whole.folder / "tuned.so"
            whole.compile(exported.directory.absolute(), library)
            engines |= {
                label: loaded(stack, whole, label, library),
                rival: loaded(stack, whole, rival, None),
            }
        bytes_, inputs = network.bytes_.absolute(), str(whole.inputs_file)
        rivals, left_out = rivals_of(args.rivals, args.python, bytes_, inputs, threads, stack)
        return {
            "model": network.name,
            "threads": threads,
            "trials": args.trials,
            **compared(engines | rivals, whole, RIVAL_FLOAT),
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
