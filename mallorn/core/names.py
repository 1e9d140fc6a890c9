"""Every name that a user can choose, and where it lives. Adding an algorithm adds one line here."""

from importlib import import_module
from typing import Any, Final

from mallorn.core.errors import InvalidRequest

REGISTRY: Final[dict[str, dict[str, str]]] = {
    "search": {
        "evolutionary": "workers.search.evolutionary:Evolutionary",
        "ga": "workers.search.ga:Genetic",
        "sa": "workers.search.sa:Annealing",
        "es": "workers.search.es:EvolutionStrategy",
        "guided": "workers.search.guided:Guided",
        "bo": "workers.search.bo:BayesianOptimisation",
        "portfolio": "workers.search.portfolio:Portfolio",
        "qlearning": "workers.search.qlearning:QLearning",
        "reinforce": "workers.search.reinforce:Reinforce",
        "ppo": "workers.search.ppo:Ppo",
        "mcts": "workers.search.mcts:Mcts",
        "random": "workers.search.random:RandomSearch",
    },
    "sampler": {
        "topk": "workers.search.topk:TopK",
        "clustered": "workers.search.clustered:Clustered",
        "contextual": "workers.search.contextual:Contextual",
        "diverse": "workers.search.diverse:Diverse",
    },
    "cost_model": {
        "xgboost": "costmodels.xgb:XGBoost",
        "lightgbm": "costmodels.lgbm:LightGBM",
        "lightgbm-rank": "costmodels.lgbm:LightGBMRank",
        "forest": "costmodels.forest:Forest",
        "mlp": "costmodels.mlp:MLP",
        "tlp": "costmodels.tlp:TLP",
        "mtl-tlp": "costmodels.mtl_tlp:MTLTLP",
        "gnn": "costmodels.gnn:GNN",
        "tree-lstm": "costmodels.tree_lstm:TreeLSTM",
        "statements": "costmodels.statements:Statements",
        "statements-rank": "costmodels.statements:StatementsRank",
        "residual": "costmodels.residual:Residual",
        "moa": "costmodels.momentum:MoA",
        "static": "costmodels.static:Static",
        "draft": "costmodels.draft:Draft",
        "ensemble": "costmodels.ensemble:Ensemble",
        "automl": "costmodels.automl:AutoML",
        "random": "costmodels.random:RandomModel",
    },
    "features": {
        "decisions": "workers.features.decisions:Decisions",
        "primitives": "workers.features.primitives:Primitives",
        "loops": "workers.features.loops:Loops",
    },
    "stopping": {
        "fixed": "workers.measure.stopping:Fixed",
        "adaptive": "workers.measure.stopping.adaptive:Adaptive",
        "racing": "workers.measure.stopping.racing:Racing",
    },
    "measurer": {
        "tvm": "workers.measure.tvm:TvmMeasurer",
        "replay": "workers.measure.replay:ReplayMeasurer",
    },
    "policy": {
        "dynatune": "services.planner.dynatune:DynaTune",
        "familyseer": "services.planner.familyseer:FamilySeer",
        "gradient": "services.planner.gradient:Gradient",
        "random": "services.planner.random_choice:RandomChoice",
        "round-robin": "services.planner.round_robin:RoundRobin",
    },
    "belief": {"power-law": "services.planner.power_law:PowerLaw"},
    "families": {
        "dynamic": "services.planner.families.dynamic:Dynamic",
        "none": "services.planner.families.none:NoFamilies",
        "operator": "services.planner.families.operator:ByOperator",
        "structure": "services.planner.families.structure:ByStructure",
    },
    "recipe": {
        "tuned": "workers.tvm.recipes:TUNED",
        "direct": "workers.tvm.recipes:DIRECT",
        "plain": "workers.tvm.recipes:PLAIN",
    },
}


def check_name(seam: str, name: str) -> None:
    """Raise InvalidRequest, listing the known names, unless `name` is registered under `seam`."""
    if name not in REGISTRY[seam]:
        raise InvalidRequest(f"unknown {seam} {name!r}", hint=f"known: {', '.join(sorted(REGISTRY[seam]))}")


def resolve(seam: str, name: str) -> Any:
    """The object registered under a name, imported on first use."""
    check_name(seam, name)
    module, _, attribute = REGISTRY[seam][name].partition(":")
    return getattr(import_module(module), attribute)
