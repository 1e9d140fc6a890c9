"""Redirects from old module paths, which users' classes may import, with a FutureWarning.

Old paths are kept for one release. `mallorn.workers` and `mallorn.costmodels` install the redirects
on import. A user's own module comes first: `searchers` is our old name only if there is no other.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

from mallorn.core.installation import IMPORT_ROOT

#: Packages of their own before they became parts of `mallorn`, as far as users' classes import them.
ROOMS: Final = frozenset({"costmodels", "research", "searchers", "services", "workers"})
#: If one old path begins with another, the longer one comes first.
MOVED: Final = {
    "workers.search.sampler": "mallorn.searchers.batch_sampler",
    "workers.search.topk": "mallorn.searchers.pooled_searcher",
    "workers.search.fill": "mallorn.searchers.fill_batch",
    "workers.search.simulate": "mallorn.searchers.simulate_search",
    "workers.search.synthetic": "mallorn.searchers.synthetic_space",
    "workers.search.pooled": "mallorn.searchers.pooled_searcher",
    "workers.search.batch": "mallorn.searchers.batch_searcher",
    "workers.search.origins": "mallorn.searchers.base",
    "workers.search": "mallorn.searchers",
    "costmodels.blobs": "mallorn.costmodels.serialization",
    "costmodels.checks": "mallorn.costmodels.views",
    "costmodels.training": "mallorn.costmodels.labels",
    "costmodels.decision_columns": "mallorn.costmodels.decision_columns_and_prefixes",
    "costmodels.lgbm": "mallorn.costmodels.lightgbm_models",
    "costmodels.networks": "mallorn.costmodels.neural_networks",
    "costmodels.xgb": "mallorn.costmodels.xgboost_models",
    "searchers.algorithms.beam": "mallorn.searchers.algorithms.beam_search",
    "searchers.algorithms.bo": "mallorn.searchers.algorithms.bayesian_optimization",
    "searchers.algorithms.es": "mallorn.searchers.algorithms.evolution_strategy",
    "searchers.algorithms.ga": "mallorn.searchers.algorithms.genetic_algorithm",
    "searchers.algorithms.mcts": "mallorn.searchers.algorithms.monte_carlo_tree_search",
    "searchers.algorithms.sa": "mallorn.searchers.algorithms.simulated_annealing",
    "searchers.learning.moves": "mallorn.searchers.learning.decision_moves",
    "searchers.roller.gpu_guesses": "mallorn.searchers.roller.gpu.metaschedule_tiles",
    "searchers.stateful": "mallorn.searchers.stateful_searcher",
}


class MovedModules(MetaPathFinder, Loader):
    """Import hook that resolves an old name to the moved module; both names are one module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not new_name(fullname):
            return None
        package = fullname.partition(".")[0]
        spec, moved = PathFinder.find_spec(package), IMPORT_ROOT / "mallorn" / package / "__init__.py"
        is_users_own = spec is not None and Path(spec.origin or "").resolve() != moved.resolve()
        return None if is_users_own else ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = new_name(spec.name)
        warnings.warn(f"{spec.name} is {new} now", FutureWarning, stacklevel=2)
        module = import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__  # importlib replaced it with the spec of the old name
        module.__spec__ = spec.loader_state if spec else None


def new_name(name: str) -> str:
    """Return the new name of a module; empty if it was not moved."""
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return f"mallorn.{name}" if name.partition(".")[0] in ROOMS else ""


def install() -> None:
    """Install the import hook, unless this process already has it."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
