"""Redirects from old module paths, which users' classes may import, with a FutureWarning.

Old paths are kept for one release. `workers` and `costmodels` install the redirects on import.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

#: If one old path begins with another, the longer one comes first.
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
    "costmodels.decision_columns": "costmodels.decision_columns_and_prefixes",
    "costmodels.lgbm": "costmodels.lightgbm_models",
    "costmodels.networks": "costmodels.neural_networks",
    "costmodels.xgb": "costmodels.xgboost_models",
    "searchers.algorithms.beam": "searchers.algorithms.beam_search",
    "searchers.algorithms.bo": "searchers.algorithms.bayesian_optimization",
    "searchers.algorithms.es": "searchers.algorithms.evolution_strategy",
    "searchers.algorithms.ga": "searchers.algorithms.genetic_algorithm",
    "searchers.algorithms.mcts": "searchers.algorithms.monte_carlo_tree_search",
    "searchers.algorithms.sa": "searchers.algorithms.simulated_annealing",
    "searchers.learning.moves": "searchers.learning.decision_moves",
    "searchers.roller.gpu_guesses": "searchers.roller.propose_gpu_candidates",
    "searchers.stateful": "searchers.stateful_searcher",
}


class MovedModules(MetaPathFinder, Loader):
    """Import hook that resolves an old name to the moved module; both names are one module."""

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
        spec = module.__spec__  # importlib replaced it with the spec of the old name
        module.__spec__ = spec.loader_state if spec else None


def new_name(name: str) -> str:
    """Return the new name of a module; empty if it was not moved."""
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return ""


def install() -> None:
    """Install the import hook, unless this process already has it."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedModules())
