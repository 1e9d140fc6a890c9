"""Every name that a user can choose, and where it lives. An algorithm of ours has a line here.

One of a user's own is named MODULE:CLASS, or as its package's entry point in the group `mallorn.SEAM`.
"""

import re
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

from mallorn.core.errors import ClassRefused, PluginFailed, UnknownName

REGISTRY: Final[dict[str, dict[str, str]]] = {
    "search": {
        "evolutionary": "searchers.algorithms.evolutionary:Evolutionary",
        "ga": "searchers.algorithms.ga:Genetic",
        "sa": "searchers.algorithms.sa:Annealing",
        "es": "searchers.algorithms.es:EvolutionStrategy",
        "guided": "searchers.algorithms.guided_walk:Guided",
        "bo": "searchers.algorithms.bo:BayesianOptimisation",
        "portfolio": "searchers.algorithms.portfolio:Portfolio",
        "qlearning": "searchers.algorithms.qlearning:QLearning",
        "reinforce": "searchers.algorithms.reinforce:Reinforce",
        "ppo": "searchers.algorithms.ppo:Ppo",
        "mcts": "searchers.algorithms.mcts:Mcts",
        "beam": "searchers.algorithms.beam:Beam",
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
        "xgboost": "costmodels.xgb:XGBoost",
        "lightgbm": "costmodels.lgbm:LightGBM",
        "lightgbm-rank": "costmodels.lgbm:LightGBMRank",
        "forest": "costmodels.forest:Forest",
        "lfbo": "costmodels.lfbo:LFBO",
        "headfirst": "costmodels.lfbo:ForestPlusLFBO",
        "mlp": "costmodels.mlp:MLP",
        "tlp": "costmodels.tlp:TLP",
        "mtl-tlp": "costmodels.mtl_tlp:MTLTLP",
        "gnn": "costmodels.gnn:GNN",
        "tree-lstm": "costmodels.tree_lstm:TreeLSTM",
        "statements": "costmodels.statement_boosters:Statements",
        "statements-rank": "costmodels.statement_boosters:StatementsRank",
        "pacm": "costmodels.pacm:PaCM",
        "residual": "costmodels.residual:Residual",
        "value": "costmodels.partial_values:ValueModel",
        "generator": "costmodels.decision_generator:GeneratorModel",
        "tcl": "costmodels.tcl_distillation:TCL",
        "moa": "costmodels.moa_momentum:MoA",
        "static": "costmodels.ridge_on_code_counts:RidgeOnCodeCounts",
        "tuna": "costmodels.tuna:Tuna",
        "draft": "costmodels.analytic_draft:Draft",
        "ensemble": "costmodels.best_of_models:BestOfModels",
        "automl": "costmodels.tune_lightgbm:AutoML",
        "random": "costmodels.random:RandomModel",
    },
    "features": {
        "decisions": "workers.features.base:AlignedDecisions",
        "primitives": "workers.features.schedule_primitives_view:Primitives",
        "loops": "workers.features.loop_tree_view:LoopsView",
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
        "simulated": "workers.measure.simulated_measurer:SimulatedMeasurer",
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


#: What a class of one's own must be; the seams that have a name for people are those that a job chooses.
CONTRACTS: Final = {
    "search": "searchers.base:Searcher",
    "sampler": "searchers.batch_sampler:BatchSampler",
    "cost_model": "costmodels.base:CostModel",
    "stopping": "workers.measure.stopping:StoppingRule",
    "measurer": "workers.measure.base:Measurer",
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
_OF_ONES_OWN: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def check_name(seam: str, name: str) -> None:
    """Raise UnknownName, listing the known names, for what is neither registered nor MODULE:CLASS.

    A class of one's own is not imported here: it need only be where it runs. One of ours has its name alone.
    """
    ours = {location: known for known, location in REGISTRY[seam].items()}
    if name in ours:
        raise UnknownName(f"{name} has a name here", hint=f"known: {ours[name]}")
    if name in REGISTRY[seam] or (seam in CONTRACTS and (_OF_ONES_OWN.fullmatch(name) or _entry(seam, name))):
        return
    known = ", ".join(sorted(REGISTRY[seam]))
    also = "; or MODULE:CLASS of your own" if seam in CONTRACTS else ""
    raise UnknownName(f"unknown {seam} {name!r}", hint=f"known: {known}{also}")


def resolve(seam: str, name: str) -> Any:
    """The object of a name, imported on first use.

    Raises UnknownName, PluginFailed where a class of one's own cannot be imported, and ClassRefused where it
    is not what the seam asks for.
    """
    check_name(seam, name)
    location = REGISTRY[seam].get(name)
    return _load(location) if location else _of_ones_own(seam, name)


def _of_ones_own(seam: str, name: str) -> Any:
    try:
        found = _load(_entry(seam, name) or name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever foreign code does when it is imported, sys.exit() too
        what = f"cannot be imported: {type(error).__name__}: {error}"
        hint = "put its module on the PYTHONPATH of every worker and of control, and start them again"
        raise PluginFailed(f"the {WORDS[seam]} {name} {what}", hint=hint, seam=seam, name=name) from error
    contract = _load(CONTRACTS[seam])
    if not (isinstance(found, type) and issubclass(found, contract)):
        why = f"is no {contract.__module__}.{contract.__name__}"
        raise ClassRefused(f"the {WORDS[seam]} {name} {why}", hint="docs/tutorials/searcher.md")
    if undone := sorted(getattr(found, "__abstractmethods__", ())):
        why = f"leaves part of its contract undone: {', '.join(undone)}"
        raise ClassRefused(f"the {WORDS[seam]} {name} {why}", hint="docs/tutorials/searcher.md")
    return found


def _load(location: str) -> Any:
    module, _, attribute = location.partition(":")
    return getattr(import_module(module), attribute)


def _entry(seam: str, name: str) -> str:
    """Where an installed package says that it has a part of this name; empty where none does."""
    found = entry_points(group=f"mallorn.{seam}", name=name)
    return next((entry.value for entry in found), "")
