"""Digests of all that is compiled for the example networks, compared with a committed file (`make digests`).

python -m benchmarks.digests [--third] [--write] [--networks mlp,...] [--targets avx2,...] [--against COMMIT]

By network and target: the module after each graph pass that changed it and, of each task, its program, the
decisions of the first guess and the code that is generated for it. A refactoring leaves the file as it is. A
change that means to alter code commits the new digests (`--write`) beside its reason; `--against` prints, as
text, what differs from a commit. Without `--write`, exits with 1 if anything differs from the file. `--third`
compiles a third of the cases, drawn by the product's code: each change of the code draws another third.

A task's key is a hash of its program: a change that keeps all keys invalidates no measurement.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from onnx import ModelProto

from benchmarks.networks.development import DEVELOPMENT
from benchmarks.networks.held_out import HELD_OUT
from benchmarks.networks.quantised import QUANTISED
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.machine import MachineKind
from mallorn.graphc.export.code_generation import compile_to_library
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.workers.host.code_digest import source_parts
from mallorn.workers.tvm.network.extract_tasks import describe_tasks
from mallorn.workers.tvm.network.graph_recipes import recipe_for, recipe_steps
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target, run_steps
from mallorn.workers.tvm.programs.buffer_bounds import check_schedule
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import (
    parse_module,
    parse_tvm_target,
    sum_registers,
    vector_lanes,
)
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space
from zoo import MODELS
from zoo.command import Networks

FROZEN: Final = Path("tests/unit/graphc/digests.json")
#: Passes and vector lanes differ: AVX2 lacks VNNI and bfloat16.
TARGETS: Final = {
    "avx2": '{"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell", "num-cores": 2}',
    "avx512": '{"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4", "num-cores": 2}',
    "amx": '{"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "sapphirerapids", "num-cores": 2}',
    "aarch64": '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-v1", "num-cores": 4}',
    "sm_90a": '{"kind": "cuda", "arch": "sm_90a"}',
}
TASK: Final = " weight"  # behind the name of a task: how often it is called
_ADDRESS: Final = re.compile(r'(?<=!\{!")0x[0-9a-f]+')
_GUESSES: Final = 12
_DIGITS: Final = 12
_MOST_LINES, _MOST_CHARS = 60, 200  # of a difference, and of its lines

Case = tuple[str, str]  # a network and a target


@dataclass(frozen=True)
class Frozen:
    """A network's builder, the targets and the precision to compile it for."""

    build: Callable[[int], ModelProto]
    targets: Sequence[str]
    precision: str = "float32"


_REAL: Final[Networks] = MODELS | DEVELOPMENT | HELD_OUT
NETWORKS: Final[Mapping[str, Frozen]] = {
    **{name: Frozen(build, ("avx512", "avx2")) for name, build in _REAL.items()},
    **{
        f"{name}-elsewhere": Frozen(_REAL[name], ("aarch64", "sm_90a"))
        for name in ("mlp", "resnet18", "mobilenetv2", "bert-small")
    },
    **{name: Frozen(build, ("avx512", "avx2", "amx", "aarch64")) for name, build in QUANTISED.items()},
    **{
        f"{name}-bf16": Frozen(_REAL[name], ("avx512", "amx"), "bf16") for name in ("mobilenetv2", "resnet18")
    },
    **{
        f"{name}-fp16": Frozen(_REAL[name], ("sm_90a", "aarch64"), "fp16")
        for name in ("resnet18", "bert-small")
    },
}
CASES: Final[list[Case]] = [(name, target) for name, frozen in NETWORKS.items() for target in frozen.targets]
Texts = dict[str, str]  # by pass, or by task and part
Digests = dict[str, str]


@dataclass
class Compiled:
    """The texts of a network for a target, and how often each task is called."""

    weights: dict[str, int] = field(default_factory=dict)
    texts: Texts = field(default_factory=dict)

    def digests(self) -> Digests:
        weights = {f"{key}{TASK}": str(weight) for key, weight in self.weights.items()}
        return weights | {name: _digest(text) for name, text in self.texts.items()}


def compile_case(network: str, target: str, has_texts: bool = True) -> Compiled:
    """Compile a network as a job without trials does; code is generated and not linked. Without
    `has_texts`, only its tasks are told."""
    frozen, parsed = NETWORKS[network], parse_target(TARGETS[target])
    tvm_target, compiled = as_tvm_target(parsed.text), Compiled()
    with TemporaryDirectory(prefix="mallorn-digests-") as folder:
        model = Path(folder, f"{network}.onnx")
        model.write_bytes(frozen.build(0).SerializeToString(deterministic=True))
        mod = load_network(str(model), {}, tvm_target).mod
    text, runs = mod.script() if has_texts else "", Counter[str]()
    compiled.texts["import"] = text
    recipe = recipe_for("tuned", parsed, frozen.precision)
    for step in recipe_steps(recipe)["before"]:
        mod, _ = run_steps(mod, [step], tvm_target)
        runs[step["pass"]] += 1
        text_before, text = text, mod.script() if has_texts else ""
        if text != text_before:
            compiled.texts[f"{step['pass']} {runs[step['pass']]}"] = text
    for task in describe_tasks(mod, tvm_target):
        name = task.key[:_DIGITS]
        compiled.weights[name] = task.weight
        if has_texts:
            parts = {"program": parse_module(task.tir).script(), **_texts_of_guess(task.tir, parsed)}
            compiled.texts |= {f"{name} {part}": text for part, text in parts.items()}
    return compiled


def _texts_of_guess(tir: str, target: Target) -> Texts:
    """Return the decisions of the first valid guess, and the code that is generated for it."""
    if (found := compile_first_guess(tir, target)) is None:
        return {}
    decisions, library = found
    code = "".join(module.inspect_source() for module in library.imports or [library])
    return {"guess": json.dumps(decisions, indent=1), "code": _number_addresses(code)}


def compile_first_guess(tir: str, target: Target) -> tuple[list[Any], Any] | None:
    """Return the trace and the decisions of the first valid guess, and its library; None without one."""
    lanes, registers = (
        (vector_lanes(target.text), sum_registers(target.text)) if target.runs_on_cores else (1, 0)
    )
    machine = target.hardware.part(MachineKind).assume_machine(target.attrs, lanes, registers)
    sketches = {sketch.key: sketch for sketch in design_space(tir, target.text)}
    for guess in ranked([*sketches.values()], nests(tir), machine, _GUESSES):
        trace = sketches[guess.sketch].trace
        if (schedule := rebuild(tir, target.text, trace, guess.decisions)) is not None:
            check_schedule(schedule.mod)  # records of what it refuses cannot be read
            # As CUDA C, which no toolkit compiles here; the part for the host depends on the host.
            library = compile_to_library(schedule.mod, parse_tvm_target(target.text))
            return [json.loads(trace), guess.decisions], library
    return None


def _number_addresses(code: str) -> str:
    """Replace the addresses that TVM uses as names of buffers in LLVM's metadata."""
    numbers: dict[str, int] = {}
    return _ADDRESS.sub(lambda match: f"0x{numbers.setdefault(match[0], len(numbers))}", code)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def describe(case: Case, folder: Path | None = None) -> Digests:
    """Return the digests of a case, and write its texts to a folder."""
    compiled = compile_case(*case)
    if folder is not None:
        (place := folder / "-".join(case)).mkdir(parents=True, exist_ok=True)
        for name, text in compiled.texts.items():
            (place / f"{name}.txt").write_text(text)
    return compiled.digests()


def differences(current: Digests, stored: Digests) -> list[str]:
    """Return the names of what is new, gone or different."""
    names = sorted(current.keys() | stored.keys())
    return [name for name in names if current.get(name) != stored.get(name)]


def draw_third(cases: Sequence[Case]) -> Sequence[Case]:
    """Return a third of the cases, which the code of the graph compiler and of the space chooses."""
    first = int(_digest(repr(sorted(source_parts().items()))), 16) % 3
    return cases[first::3]


def write_texts(cases: Sequence[Case], tree: Path, folder: Path) -> None:
    """Write the texts of cases as a checkout of this repository compiles them."""
    words = [part for case in cases for part in ("--case", "/".join(case))]
    command = [sys.executable, "-m", "benchmarks.digests", *words, "--texts", str(folder)]
    paths = os.pathsep.join(str(tree / part) for part in (".", "examples", "runtime"))
    environment = os.environ | {"PYTHONPATH": paths}
    subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, check=False)
    if not folder.exists():
        sys.exit(f"nothing was compiled in {tree}; does that commit have benchmarks/digests.py?")


def print_text_differences(cases: Sequence[Case], commit: str) -> None:
    """Print what differs from a commit, which is checked out and compiled beside this tree."""
    with TemporaryDirectory(prefix="mallorn-digests-") as name:
        here, there, tree = (Path(name, part) for part in ("here", "there", "tree"))
        git = "git", "worktree"
        subprocess.run([*git, "add", "--detach", str(tree), commit], check=True, capture_output=True)
        try:
            write_texts(cases, Path.cwd(), here)
            write_texts(cases, tree, there)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
        names = {file.relative_to(side) for side in (here, there) for file in side.rglob("*.txt")}
        for file in sorted(names):
            both = [side / file for side in (there, here)]
            old, new = (path.read_text().splitlines() if path.exists() else [] for path in both)
            lines = [*difflib.unified_diff(old, new, f"{commit}/{file}", str(file), lineterm="", n=2)]
            for line in lines[:_MOST_LINES]:
                print(line[:_MOST_CHARS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="store the digests as the expected ones")
    parser.add_argument("--third", action="store_true", help="of the cases, drawn by the product's code")
    parser.add_argument("--networks", type=lambda text: text.split(","), default=[*NETWORKS])
    parser.add_argument("--targets", type=lambda text: text.split(","), default=[*TARGETS])
    parser.add_argument("--case", action="append", type=lambda text: tuple(text.split("/")))
    parser.add_argument("--texts", type=Path, metavar="FOLDER", help="write the texts there, too")
    parser.add_argument("--against", metavar="COMMIT", help="print what differs from a commit, as text")
    args = parser.parse_args()
    cases = args.case or [case for case in CASES if case[0] in args.networks and case[1] in args.targets]
    if args.third:
        cases = draw_third(cases)
    if not cases:
        parser.error(f"no such network and target; networks: {', '.join(NETWORKS)}")
    stored: dict[str, dict[str, Digests]] = json.loads(FROZEN.read_text()) if FROZEN.exists() else {}
    different = []
    with Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        answers = pool.imap(partial(describe, folder=args.texts), cases)
        for (network, target), current in zip(cases, answers, strict=True):
            if names := differences(current, stored.get(network, {}).get(target, {})):
                different.append((network, target))
                print(f"{network} on {target}: {len(names)} differ, first {names[0]}", flush=True)
            stored.setdefault(network, {})[target] = current
    if args.write:
        FROZEN.write_text(json.dumps(stored, indent=1) + "\n")
    elif different and args.against:
        print_text_differences(different, args.against)
    print(f"{len(cases) - len(different)} of {len(cases)} cases are as they were")
    if different and not args.write:
        print("If that is meant, store the new digests:   python -m benchmarks.digests --write")
    sys.exit(bool(different) and not args.write)


if __name__ == "__main__":
    main()
