"""A kind of hardware is one folder: who finds it, and that nothing elsewhere asks which kind it is."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from benchmarks.house_tree import ROOMS
from mallorn.core.errors import InvalidTarget
from mallorn.core.targets import kind_of_word, parse_target

ROOT: Final = Path(__file__).parents[3]
#: What a file would name that asks for a kind of accelerator; not names that users write, as `cuda`.
NAMES_A_KIND: Final = re.compile(r"(?<!`)(?i:cuda|nvcc|nvidia(?!/|-h100))(?!`)|\bis_gpu\b")
#: Files that name kinds because they list them, or because stored rows have these names.
LISTS: Final = frozenset(
    {
        "mallorn/core/registry.py",
        "graphc/core/graph_kind.py",
        "db/migrations/versions/0_2_0_25_work_is_due.py",
    }
)
PARSE: Final = "import sys; from mallorn.core.targets import parse_target; parse_target(sys.argv[1]); "
LOADED: Final = "print(*sorted(name for name in sys.modules if name.startswith('mallorn.')))"


def test_no_file_outside_its_folder_names_a_kind_of_accelerator() -> None:
    rooms = [ROOT / room for room in ROOMS if room != "kinds"]
    files = {file for room in rooms for file in room.rglob("*.py") if "node_modules" not in file.parts}
    naming = {file.relative_to(ROOT).as_posix() for file in files if NAMES_A_KIND.search(file.read_text())}
    assert naming - LISTS == set()


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 2}, "x86"),
        ({"kind": "llvm", "mtriple": "arm64-apple-darwin", "num-cores": 2}, "aarch64"),
        ({"kind": "cuda", "arch": "sm_80"}, "cuda"),
        ({"tag": "nvidia/nvidia-h100"}, "cuda"),
    ],
)
def test_a_target_finds_its_kind(target: dict[str, object], kind: str) -> None:
    assert parse_target(target).hardware.name == kind


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"kind": "rocm"}, "unknown target kind 'rocm'; known: c, cuda, llvm"),
        ({"kind": "llvm", "mtriple": "s390x-linux-gnu", "num-cores": 2}, "no kind of hardware .* s390x"),
    ],
)
def test_hardware_that_no_package_describes_is_refused(attrs: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidTarget, match=message) as refused:
        parse_target(attrs)
    assert refused.value.hint


def test_the_name_of_a_kind_of_accelerator_stands_for_a_machines_own() -> None:
    named = kind_of_word("cuda")
    assert named is not None
    assert not named.runs_on_cores
    assert kind_of_word("x86") is None, "a CPU is `local`"


def test_a_target_of_a_cpu_loads_no_code_for_accelerators() -> None:
    target = '{"kind":"llvm","num-cores":2}'
    done = subprocess.run(
        [sys.executable, "-c", PARSE + LOADED, target], capture_output=True, text=True, check=True
    )
    kinds = {name for name in done.stdout.split() if name.startswith("mallorn.kinds.")}
    heavy = {name for name in kinds if re.search(r"\.(compiler|device|sketches|times)\b", name)}
    assert heavy == set()
    assert "mallorn.workers" not in done.stdout
