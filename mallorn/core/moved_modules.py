"""Old paths of modules that users' own classes import: the new module is loaded, with a warning.

They stay for one release. `workers` and `costmodels` install this when they are imported.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

#: Longest first where one begins with another.
MOVED: Final = {
    "workers.search.sampler": "searchers.batch_sampler",
    "workers.search.topk": "searchers.pooled_searcher",
    "workers.search.fill": "searchers.fill_batch",
    "workers.search.simulate": "searchers.simulate_search",
    "workers.search.synthetic": "searchers.synthetic_space",
    "workers.search.pooled": "searchers.pooled_searcher",
    "workers.search.batch": "searchers.batch_searcher",
    "workers.search.origins": "searchers.base",
    "workers.search": "searchers",
    "costmodels.blobs": "costmodels.serialization",
    "costmodels.checks": "costmodels.views",
    "costmodels.training": "costmodels.labels",
}


class MovedModules(MetaPathFinder, Loader):
    """Finds a moved module under its old name; both names are one module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if new_name(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = new_name(spec.name)
        warnings.warn(f"{spec.name} is {new} now", FutureWarning, stacklevel=2)
        module = import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__  # importlib wrote the old name's into it
        module.__spec__ = spec.loader_state if spec else None


def new_name(name: str) -> str:
    """Where a module is now; empty where it never moved."""
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return ""


def install() -> None:
    """Once a process."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
