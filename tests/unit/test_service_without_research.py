"""The service runs without the room research, and says how to get it."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.house_tree import ROOMS
from mallorn.core.registry import REGISTRY, RESEARCH

ROOT: Final = Path(__file__).parents[2]
#: `cli` may import research. `graphc` imports TVM, which takes minutes; import-linter reads both.
SERVICE: Final = [room for room in ROOMS if room not in ("cli", "graphc", "research")]
#: Programs, and modules that need pytest, torch or TVM.
NOT_IMPORTED: Final = ("__main__", "tvm", "testing", "torch_backend", "torch_module")
RUN: Final = """
import sys
from importlib import import_module
from mallorn.core.errors import MissingPackage
from mallorn.core.registry import RESEARCH, REGISTRY, list_runnable_cost_models, resolve

sys.modules[RESEARCH] = None  # as if it were not installed
for module in sys.argv[1:]:
    import_module(module)
runnable = list_runnable_cost_models()
for seam, entries in REGISTRY.items():
    for name, location in entries.items():
        if not location.startswith(RESEARCH):
            if not location.startswith("mallorn.workers.tvm."):
                resolve(seam, name)
            continue
        assert seam != "cost_model" or name not in runnable, name
        try:
            resolve(seam, name)
        except MissingPackage as error:
            assert name in error.message and RESEARCH in error.message, error.message
            assert "pip install" in error.hint and "[research]" in error.hint, error.hint
        else:
            raise AssertionError(f"{name} of {seam} needs research")
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
    process = subprocess.run([sys.executable, "-c", RUN, *modules], cwd=ROOT, capture_output=True, text=True)
    assert process.stdout.strip() == "ok", process.stderr[-3000:]


def test_the_defaults_need_no_research() -> None:
    from mallorn.core.job_options import CUDA_COST_MODEL, JobOptions
    from mallorn.searchers.algorithms.portfolio import ARMS

    options = JobOptions()
    chosen = [(seam, getattr(options, seam)) for seam in REGISTRY if hasattr(options, seam)]
    chosen += [("cost_model", CUDA_COST_MODEL), *(("search", arm) for arm in ARMS)]
    assert [name for seam, name in chosen if REGISTRY[seam][name].startswith(RESEARCH)] == []
