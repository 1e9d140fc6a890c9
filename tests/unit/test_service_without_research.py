"""The service runs without mallorn-research, and says how to install it."""

import os
import subprocess
import sys
from typing import Final

from benchmarks.house_tree import ROOMS
from mallorn.core.registry import REGISTRY
from tests.fixtures.command_line import ROOT, WITHOUT_RESEARCH

#: `graphc` imports TVM, which takes minutes; import-linter reads it, too.
SERVICE: Final = [room for room in ROOMS if room != "graphc"]
#: Programs, and modules that need pytest, torch or TVM.
NOT_IMPORTED: Final = ("__main__", "tvm", "testing", "torch_backend", "torch_module")
RUN: Final = """
import sys
from importlib import import_module

from mallorn.core.errors import MissingPackage
from mallorn.core.registry import REGISTRY, RESEARCH_NAMES, WORDS, list_runnable_cost_models, resolve

for module in sys.argv[1:]:
    import_module(module)
for seam, entries in REGISTRY.items():
    for name, location in entries.items():
        if not location.startswith("mallorn.workers.tvm."):
            resolve(seam, name)
for seam, names in RESEARCH_NAMES.items():
    for name in names:
        try:
            resolve(seam, name)
        except MissingPackage as error:
            assert error.message == (
                f"the {WORDS[seam]} {name.replace('.', ' ')} needs mallorn-research, which is not installed"
            ), error.message
            assert "pip install" in error.hint and "research" in error.hint, error.hint
        else:
            raise AssertionError(f"{name} of {seam} needs research")
assert not {*list_runnable_cost_models()} & {*RESEARCH_NAMES["cost_model"]}
print("ok")
"""


def service_modules() -> list[str]:
    """Return the names of all modules of the service."""
    names = []
    for room in SERVICE:
        for file in sorted((ROOT / room).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            if not {"node_modules", "migrations", *NOT_IMPORTED} & set(parts):
                parts = parts[:-1] if parts[-1] == "__init__" else parts
                names.append(".".join(parts if room == "mallorn" else ("mallorn", *parts)))
    return names


def test_every_module_and_every_other_name_works_without_research() -> None:
    modules = service_modules()
    assert len(modules) > 300
    env = {**os.environ, "PYTHONPATH": str(WITHOUT_RESEARCH)}
    command = [sys.executable, "-c", RUN, *modules]
    process = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert process.stdout.strip() == "ok", process.stderr[-3000:]


def test_no_module_of_the_service_names_a_module_of_research() -> None:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    assert [str(file) for file in files if "mallorn_research." in file.read_text()] == []


def test_the_defaults_need_no_research() -> None:
    from mallorn.core.job_options import JobOptions
    from mallorn.core.registry import list_kinds
    from mallorn.searchers.algorithms.portfolio import ARMS

    options = JobOptions()
    chosen = [(seam, getattr(options, seam)) for seam in REGISTRY if hasattr(options, seam)]
    chosen += [*(("search", arm) for arm in ARMS)]
    chosen += [pair for kind in list_kinds() for pair in kind.default_options.items()]
    assert [(seam, name) for seam, name in chosen if name not in REGISTRY[seam]] == []
