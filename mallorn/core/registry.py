"""Registry of what a user can choose by name, and the libraries that each choice needs.

A `seam` is a kind of choice, usually a job option such as `search`. A user's own class is
named MODULE:CLASS, or by its package's entry point in the group ``mallorn.SEAM``.
"""

import re
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Final

from mallorn.core.errors import ClassRefused, PluginFailed, UnknownName

REGISTRY: Final[dict[str, dict[str, str]]] = {
    "search": {
        "evolutionary": "searchers.algorithms.evolutionary:Evolutionary",
        "ga": "searchers.algorithms.genetic_algorithm:Genetic",
        "sa": "searchers.algorithms.simulated_annealing:Annealing",
        "es": "searchers.algorithms.evolution_strategy:EvolutionStrategy",
        "guided": "searchers.algorithms.guided_walk:Guided",
        "bo": "searchers.algorithms.bayesian_optimization:BayesianOptimisation",
        "portfolio": "searchers.algorithms.portfolio:Portfolio",
        "qlearning": "searchers.algorithms.qlearning:QLearning",
        "reinforce": "searchers.algorithms.reinforce:Reinforce",
        "ppo": "searchers.algorithms.ppo:Ppo",
        "mcts": "searchers.algorithms.monte_carlo_tree_search:Mcts",
        "beam": "searchers.algorithms.beam_search:Beam",
        "generator": "searchers.algorithms.sample_decision_model:Generator",
        "felix": "searchers.algorithms.felix:Felix",
        "roller": "searchers.algorithms.roller:Roller",
        "random": "searchers.algorithms.random:RandomSearch",
    },
    "sampler": {
        "topk": "searchers.pooled_searcher:TopK",
        "clustered": "searchers.samplers.clustered:Clustered",
        "contextual": "searchers.pooled_searcher:Contextual",
        "diverse": "searchers.samplers.diverse:Diverse",
    },
    "cost_model": {
        "xgboost": "costmodels.xgboost_models:XGBoost",
        "lightgbm": "costmodels.lightgbm_models:LightGBM",
        "lightgbm-rank": "costmodels.lightgbm_models:LightGBMRank",
        "forest": "costmodels.forest:Forest",
        "lfbo": "costmodels.forest:LFBO",
        "headfirst": "costmodels.forest:ForestPlusLFBO",
        "mlp": "costmodels.mlp:MLP",
        "tlp": "costmodels.neural_networks:TLP",
        "mtl-tlp": "costmodels.adapted_networks:MTLTLP",
        "gnn": "costmodels.neural_networks:GNN",
        "tree-lstm": "costmodels.neural_networks:TreeLSTM",
        "statements": "costmodels.statement_boosters:Statements",
        "statements-rank": "costmodels.statement_boosters:StatementsRank",
        "pacm": "costmodels.neural_networks:PaCM",
        "residual": "costmodels.residual:Residual",
        "value": "costmodels.prefix_boosters:ValueModel",
        "generator": "costmodels.prefix_boosters:GeneratorModel",
        "tcl": "costmodels.adapted_networks:TCL",
        "moa": "costmodels.adapted_networks:MoA",
        "static": "costmodels.ridge_on_code_counts:RidgeOnCodeCounts",
        "tuna": "costmodels.analytic_models:Tuna",
        "draft": "costmodels.analytic_models:Draft",
        "ensemble": "costmodels.best_of_models:BestOfModels",
        "automl": "costmodels.lightgbm_models:AutoML",
        "random": "costmodels.random:RandomModel",
    },
    "features": {
        "decisions": "workers.features.feature_extractor:AlignedDecisions",
        "primitives": "workers.features.schedule_primitives_view:Primitives",
        "loops": "workers.features.loop_tree_view:LoopsView",
    },
    "lowered_features": {  # feature views that the compiler process computes
        "statements": "workers.tvm.lowered_views:describe_statements",
        "code": "workers.tvm.lowered_views:describe_code",
        "executed": "workers.tvm.lowered_views:describe_executed",
        "launch": "workers.tvm.lowered_views:describe_launch",
    },
    "stopping": {
        "fixed": "workers.measure.stopping:Fixed",
        "adaptive": "workers.measure.stopping.adaptive:Adaptive",
        "racing": "workers.measure.stopping.adaptive:Racing",
    },
    "measurer": {
        "tvm": "workers.measure.tvm_measurer:TvmMeasurer",
        "detached": "workers.measure.detached_measurer:DetachedMeasurer",
        "replay": "research.replay.measurer:ReplayMeasurer",
        "simulated": "research.simulated_device.measurer:SimulatedMeasurer",
    },
    "policy": {
        "dynatune": "services.planner.dynatune:DynaTune",
        "familyseer": "services.planner.familyseer:FamilySeer",
        "gradient": "services.planner.ansor_gradient:Gradient",
        "random": "services.planner.baseline_policies:RandomChoice",
        "round-robin": "services.planner.baseline_policies:RoundRobin",
    },
    "belief": {"power-law": "services.planner.power_law_belief:PowerLaw"},
    "families": {
        "dynamic": "services.planner.families.families_by_evidence:ByEvidence",
        "none": "services.planner.families.fixed_families:NoFamilies",
        "operator": "services.planner.families.fixed_families:ByOperator",
        "structure": "services.planner.families.fixed_families:ByStructure",
    },
    "recipe": {
        "tuned": "workers.tvm.graph_recipes:TUNED",
        "direct": "workers.tvm.graph_recipes:DIRECT",
        "plain": "workers.tvm.graph_recipes:PLAIN",
    },
}

#: Measurers that are virtual devices: they look up or compute times and need no hardware. Their
#: jobs have targets of their own (mallorn.core.virtual_devices).
VIRTUAL_DEVICES: Final = frozenset({"replay", "simulated"})

#: Base class that a user's own class must have, by seam. WORDS names the seams in messages.
CONTRACTS: Final = {
    "search": "searchers.base:Searcher",
    "sampler": "searchers.batch_sampler:BatchSampler",
    "cost_model": "costmodels.base:CostModel",
    "stopping": "workers.measure.stopping:StoppingRule",
    "measurer": "workers.measure.measurer_interface:Measurer",
    "policy": "services.planner.policy:Policy",
    "families": "services.planner.families.base:Families",
}
WORDS: Final = {
    "search": "searcher",
    "sampler": "batch sampler",
    "cost_model": "cost model",
    "stopping": "stopping rule",
    "measurer": "measurer",
    "policy": "task policy",
    "families": "grouping of tasks",
}
_CLASS_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def check_name(seam: str, name: str) -> None:
    """Raise UnknownName, with all known names, unless `name` is registered or MODULE:CLASS.

    A user's own class is not imported here: only the process that runs it must have it.
    Built-in classes are accepted only by their registered name.
    """
    name_by_location = {location: registered for registered, location in REGISTRY[seam].items()}
    if name in name_by_location:
        raise UnknownName(f"{name} has a name here", hint=f"known: {name_by_location[name]}")
    if name in REGISTRY[seam] or (
        seam in CONTRACTS and (_CLASS_PATH.fullmatch(name) or _find_entry_point(seam, name))
    ):
        return
    names = ", ".join(sorted(REGISTRY[seam]))
    also = "; or MODULE:CLASS of your own" if seam in CONTRACTS else ""
    raise UnknownName(f"unknown {seam} {name!r}", hint=f"known: {names}{also}")


def resolve(seam: str, name: str) -> Any:
    """Import and return the class or object that is registered under this name.

    Raises UnknownName, PluginFailed if a user's own class cannot be imported, and
    ClassRefused if it does not implement the seam's base class.
    """
    check_name(seam, name)
    location = REGISTRY[seam].get(name)
    return _load(location) if location else _import_user_class(seam, name)


def _import_user_class(seam: str, name: str) -> Any:
    try:
        cls = _load(_find_entry_point(seam, name) or name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an imported module may raise anything, even SystemExit
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        hint = "put its module on the PYTHONPATH of every worker and of control, and start them again"
        raise PluginFailed(f"the {WORDS[seam]} {name} {problem}", hint=hint, seam=seam, name=name) from error
    contract = _load(CONTRACTS[seam])
    if not (isinstance(cls, type) and issubclass(cls, contract)):
        problem = f"is no {contract.__module__}.{contract.__name__}"
        raise ClassRefused(f"the {WORDS[seam]} {name} {problem}", hint="docs/tutorials/searcher.md")
    if methods := sorted(getattr(cls, "__abstractmethods__", ())):
        problem = f"leaves part of its contract undone: {', '.join(methods)}"
        raise ClassRefused(f"the {WORDS[seam]} {name} {problem}", hint="docs/tutorials/searcher.md")
    return cls


def _load(location: str) -> Any:
    module, _, attribute = location.partition(":")
    return getattr(import_module(module), attribute)


def _find_entry_point(seam: str, name: str) -> str:
    return next((entry.value for entry in entry_points(group=f"mallorn.{seam}", name=name)), "")


#: Libraries of each cost model besides numpy. Users' own models are assumed to have theirs.
LIBRARIES: Final[dict[str, frozenset[str]]] = {
    "xgboost": frozenset({"xgboost"}),
    "lightgbm": frozenset({"lightgbm"}),
    "lightgbm-rank": frozenset({"lightgbm"}),
    "forest": frozenset({"sklearn"}),
    "lfbo": frozenset({"sklearn"}),
    "headfirst": frozenset({"sklearn"}),
    "mlp": frozenset({"threadpoolctl"}),
    "tlp": frozenset({"torch"}),
    "mtl-tlp": frozenset({"torch"}),
    "gnn": frozenset({"torch"}),
    "tree-lstm": frozenset({"torch"}),
    "pacm": frozenset({"torch"}),
    "statements": frozenset({"xgboost"}),
    "statements-rank": frozenset({"xgboost"}),
    "residual": frozenset({"xgboost"}),
    "value": frozenset({"xgboost"}),
    "generator": frozenset({"xgboost"}),
    "automl": frozenset({"flaml", "lightgbm"}),
}
#: Models that consist of other models.
PARTS: Final = {
    "ensemble": ("draft", "xgboost", "lightgbm", "forest", "mlp"),
    "moa": ("tlp",),
    "tcl": ("tlp",),
}
EXTRAS: Final = {"flaml": "automl", "torch": "neural"}  # all other libraries: `worker`


def libraries_of(cost_model: str) -> frozenset[str]:
    """Return the libraries that a cost model, and any models inside it, import."""
    own = LIBRARIES.get(cost_model, frozenset())
    return own.union(*(libraries_of(part) for part in PARTS.get(cost_model, ())))


def list_runnable_cost_models() -> list[str]:
    """Return the registered cost models whose libraries are installed here."""
    installed = {name for name in frozenset().union(*LIBRARIES.values()) if find_spec(name)}
    return [name for name in REGISTRY["cost_model"] if libraries_of(name) <= installed]


def find_pip_extras(libraries: Iterable[str]) -> str:
    """Return the extras that install these libraries, as a comma-separated list for pip."""
    return ",".join(sorted({EXTRAS.get(name, "worker") for name in libraries}))
