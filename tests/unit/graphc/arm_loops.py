"""Code for aarch64 of products under first guesses, and its innermost loops.

python -m tests.unit.graphc.arm_loops FOLDER writes the hottest loops of `KEPT` there.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

import tvm

from mallorn.graphc.quant.dot_products import Fp16DotProducts, Int8DotProducts
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.programs.tensor_intrinsics import load_intrinsics
from tests.unit.graphc import networks
from tests.unit.graphc.first_guess import first_guess
from tests.unit.graphc.networks import random_of
from tests.unit.graphc.test_int8_dot_products import network

_LABEL: Final = re.compile(r"(\.LBB\w+):")
_JUMP: Final = re.compile(r"\t(?:b\.\w+|b|cbn?z|tbn?z)\t.*?(\.LBB\w+)$")
CASES: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]] = {
    "rows": ((64, 256), (256, 128), {}),
    "one row": ((1, 512), (512, 256), {}),
    "a batch of rows": ((4, 49, 64), (64, 64), {}),
    "a pointwise convolution": ((1, 28, 28, 64), (1, 1, 64, 128), {"padding": 0}),
    "a window": ((1, 14, 14, 64), (3, 3, 64, 64), {"padding": 1}),
    "few channels": ((1, 32, 32, 3), (3, 3, 3, 32), {"padding": 1, "strides": 2}),
}


def target(*features: str, mcpu: str = "generic") -> str:
    facts = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": mcpu, "num-cores": 1}
    return json.dumps(facts | ({"mattr": [f"+{feature}" for feature in features]} if features else {}))


def innermost_loops(assembly: str) -> list[list[str]]:
    """Return the lines of each loop without another loop in it."""
    lines, starts, loops = assembly.splitlines(), dict[str, int](), []
    for at, line in enumerate(lines):
        if found := _LABEL.match(line):
            starts[found[1]] = at
        elif (jump := _JUMP.match(line)) and jump[1] in starts:
            loops.append((starts[jump[1]], at))
    is_outer = {a for a in loops for b in loops if a != b and a[0] <= b[0] and b[1] <= a[1]}
    return [lines[first : last + 1] for first, last in loops if (first, last) not in is_outer]


def kernel_assembly(case: Any, dtype: str, text: str) -> str:
    """Return the code of a product's kernel under the first guess, for data of this type."""
    load_intrinsics('{"kind":"llvm","mtriple":"aarch64-linux-gnu"}')
    data, kernel, options = case
    if dtype in ("uint8", "int8"):
        mod, change = network(data, random_of("int8", *kernel), dtype, **options), Int8DotProducts()
    else:
        weights = networks.random(*kernel)
        mod = networks.network(lambda _, x: networks.product(x, weights, **options), data)
        change = Fp16DotProducts() if dtype == "float16" else None
    with as_tvm_target(text):
        fused = networks.fused(change(mod) if change else mod, as_tvm_target(text))
    (function,) = (
        function
        for var, function in fused.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc) and re.search("matmul|conv", var.name_hint)
    )
    built = tvm.tirx.build(first_guess(function, text), target=as_tvm_target(text))
    return str(built.inspect_source("asm"))


def hot_loops(assembly: str, word: str) -> list[list[str]]:
    """Return the innermost loops that multiply by this instruction."""
    return [loop for loop in innermost_loops(assembly) if any(f"\t{word}\tv" in line for line in loop)]


# By case, data type, processor and instruction.
KEPT: Final = [
    ("rows", "uint8", "neoverse-n1", "sdot"),
    ("a window", "uint8", "neoverse-n1", "sdot"),
    ("rows", "uint8", "neoverse-v1", "usmmla"),
    ("a window", "uint8", "neoverse-v1", "usmmla"),
    ("one row", "uint8", "neoverse-v1", "usdot"),
    ("rows", "float16", "neoverse-v1", "fmlal2"),
    ("rows", "float32", "neoverse-v1", "fmla"),
]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, dtype, mcpu, word in KEPT:
        loops = hot_loops(kernel_assembly(CASES[name], dtype, target(mcpu=mcpu)), word)
        longest = max(loops, key=lambda loop: sum(word in line for line in loop))
        file = folder / f"{mcpu}_{dtype}_{name.replace(' ', '_')}.s"
        file.write_text("\n".join([f"// {name}: {CASES[name]}, {word}", *longest, ""]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
