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
from mallorn.core.installation import import_optional_module

#: The room that the service runs without; its extra has the same name.
RESEARCH: Final = "mallorn.research"
REGISTRY: Final[dict[str, dict[str, str]]] = {
    "search": {
        "evolutionary": "mallorn.searchers.algorithms.evolutionary:Evolutionary",
        "ga": "mallorn.searchers.algorithms.genetic_algorithm:Genetic",
        "sa": "mallorn.searchers.algorithms.simulated_annealing:Annealing",
        "es": "mallorn.research.searchers.evolution_strategy:EvolutionStrategy",
        "guided": "mallorn.research.searchers.guided_walk:Guided",
        "bo": "mallorn.research.searchers.bayesian_optimization:BayesianOptimisation",
        "portfolio": "mallorn.searchers.algorithms.portfolio:Portfolio",
        "qlearning": "mallorn.research.searchers.qlearning:QLearning",
        "reinforce": "mallorn.searchers.algorithms.reinforce:Reinforce",
        "ppo": "mallorn.research.searchers.ppo:Ppo",
        "mcts": "mallorn.research.searchers.monte_carlo_tree_search:Mcts",
        "beam": "mallorn.research.searchers.beam_search:Beam",
        "generator": "mallorn.research.searchers.sample_decision_model:Generator",
        "felix": "mallorn.research.searchers.felix:Felix",
        "roller": "mallorn.searchers.algorithms.roller:Roller",
        "random": "mallorn.searchers.algorithms.random:RandomSearch",
    },
    "sampler": {
        "topk": "mallorn.searchers.pooled_searcher:TopK",
        "clustered": "mallorn.research.samplers.clustered:Clustered",
        "contextual": "mallorn.searchers.pooled_searcher:Contextual",
        "diverse": "mallorn.research.samplers.diverse:Diverse",
    },
    "cost_model": {
        "xgboost": "mallorn.costmodels.xgboost_models:XGBoost",
        "lightgbm": "mallorn.costmodels.lightgbm_models:LightGBM",
        "lightgbm-rank": "mallorn.costmodels.lightgbm_models:LightGBMRank",
        "forest": "mallorn.research.costmodels.forest:Forest",
        "lfbo": "mallorn.research.costmodels.forest:LFBO",
        "headfirst": "mallorn.research.costmodels.forest:ForestPlusLFBO",
        "mlp": "mallorn.research.costmodels.mlp:MLP",
        "tlp": "mallorn.research.costmodels.neural_networks:TLP",
        "mtl-tlp": "mallorn.research.costmodels.adapted_networks:MTLTLP",
        "gnn": "mallorn.research.costmodels.neural_networks:GNN",
        "tree-lstm": "mallorn.research.costmodels.neural_networks:TreeLSTM",
        "statements": "mallorn.research.costmodels.statement_boosters:Statements",
        "statements-rank": "mallorn.research.costmodels.statement_boosters:StatementsRank",
        "pacm": "mallorn.research.costmodels.neural_networks:PaCM",
        "kernel-time": "mallorn.costmodels.kernel_time_boosters:KernelTime",
        "residual": "mallorn.research.costmodels.residual:Residual",
        "value": "mallorn.research.costmodels.prefix_boosters:ValueModel",
        "generator": "mallorn.research.costmodels.prefix_boosters:GeneratorModel",
        "tcl": "mallorn.research.costmodels.adapted_networks:TCL",
        "moa": "mallorn.research.costmodels.adapted_networks:MoA",
        "static": "mallorn.research.costmodels.ridge_on_code_counts:RidgeOnCodeCounts",
        "tuna": "mallorn.costmodels.analytic_models:Tuna",
        "draft": "mallorn.costmodels.analytic_models:Draft",
        "ensemble": "mallorn.research.costmodels.best_of_models:BestOfModels",
        "automl": "mallorn.costmodels.lightgbm_models:AutoML",
        "random": "mallorn.costmodels.random:RandomModel",
    },
    "features": {
        "decisions": "mallorn.workers.features.feature_extractor:AlignedDecisions",
        "primitives": "mallorn.research.features.schedule_primitives_view:Primitives",
        "loops": "mallorn.research.features.loop_tree_view:LoopsView",
    },
    "lowered_features": {  # feature views that the compiler process computes
        "statements": "mallorn.workers.tvm.space.lowered_views:describe_statements",
        "code": "mallorn.workers.tvm.space.lowered_views:describe_code",
        "executed": "mallorn.workers.tvm.space.lowered_views:describe_executed",
        "kernels": "mallorn.workers.tvm.space.cuda_kernel_view:describe_kernels",
    },
    "cuda_sketch": {  # our own kinds of schedules for CUDA, in the order of their sketches
        "tensor core product": "mallorn.workers.tvm.space.cuda_sketches.tensor_core_products:schedules",
        "vector product": "mallorn.workers.tvm.space.cuda_sketches.vector_products:schedules",
        "row reduction": "mallorn.workers.tvm.space.cuda_sketches.row_reductions:schedules",
        "cuda core product": "mallorn.workers.tvm.space.cuda_sketches.cuda_core_products:schedules",
        "mover": "mallorn.workers.tvm.space.cuda_sketches.movers:schedules",
        "window": "mallorn.workers.tvm.space.cuda_sketches.windows:schedules",
        "short attention": "mallorn.workers.tvm.space.cuda_sketches.short_attention:schedules",
    },
    "gpu_model": {  # the time of each kind's candidates
        "MetaSchedule": "mallorn.searchers.roller.gpu.metaschedule_tiles:stock_model",
        "other": "mallorn.searchers.roller.gpu.sketch_model:UnknownKind",
        "tensor core product": "mallorn.searchers.roller.gpu.tensor_core_product:TensorCoreProduct",
        "vector product": "mallorn.searchers.roller.gpu.thread_sum:SumByThreads",
        "row reduction": "mallorn.searchers.roller.gpu.thread_sum:RowReduction",
        "cuda core product": "mallorn.searchers.roller.gpu.cuda_core_product:CudaCoreProduct",
        "mover": "mallorn.searchers.roller.gpu.moved_bytes:Mover",
        "window": "mallorn.searchers.roller.gpu.moved_bytes:Window",
        "short attention": "mallorn.searchers.roller.gpu.short_attention:ShortAttentionKernel",
    },
    "stopping": {
        "fixed": "mallorn.workers.measure.stopping:Fixed",
        "adaptive": "mallorn.workers.measure.stopping.adaptive:Adaptive",
        "racing": "mallorn.workers.measure.stopping.adaptive:Racing",
    },
    "measurer": {
        "tvm": "mallorn.workers.measure.tvm_measurer:TvmMeasurer",
        "detached": "mallorn.workers.measure.detached_measurer:DetachedMeasurer",
        "replay": "mallorn.research.replay.measurer:ReplayMeasurer",
        "simulated": "mallorn.research.simulated_device.measurer:SimulatedMeasurer",
    },
    "policy": {
        "dynatune": "mallorn.services.planner.dynatune:DynaTune",
        "familyseer": "mallorn.services.planner.familyseer:FamilySeer",
        "gradient": "mallorn.services.planner.ansor_gradient:Gradient",
        "random": "mallorn.services.planner.baseline_policies:RandomChoice",
        "round-robin": "mallorn.services.planner.baseline_policies:RoundRobin",
    },
    "families": {
        "dynamic": "mallorn.services.planner.families.families_by_evidence:ByEvidence",
        "none": "mallorn.services.planner.families.fixed_families:NoFamilies",
        "operator": "mallorn.services.planner.families.fixed_families:ByOperator",
        "structure": "mallorn.services.planner.families.fixed_families:ByStructure",
    },
    "recipe": {
        "tuned": "mallorn.workers.tvm.network.graph_recipes:TUNED",
        "direct": "mallorn.workers.tvm.network.graph_recipes:DIRECT",
        "plain": "mallorn.workers.tvm.network.graph_recipes:PLAIN",
    },
}

#: Measurers that are virtual devices: they look up or compute times and need no hardware.
#: Their jobs have targets of their own (mallorn.core.virtual_devices).
VIRTUAL_DEVICES: Final = frozenset({"replay", "simulated"})

#: Base class that a user's own class must have, by seam. WORDS names the seams in messages.
CONTRACTS: Final = {
    "search": "mallorn.searchers.base:Searcher",
    "sampler": "mallorn.searchers.sampler:Sampler",
    "cost_model": "mallorn.costmodels.base:CostModel",
    "stopping": "mallorn.workers.measure.stopping:StoppingRule",
    "measurer": "mallorn.workers.measure.measurer_interface:Measurer",
    "policy": "mallorn.services.planner.policy:Policy",
    "families": "mallorn.services.planner.families.base:Families",
}
WORDS: Final = {
    "search": "searcher",
    "sampler": "sampler",
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
        raise UnknownName(f"{name} has a short name; use that", hint=f"known: {name_by_location[name]}")
    if name in REGISTRY[seam] or (
        seam in CONTRACTS and (_CLASS_PATH.fullmatch(name) or _find_entry_point(seam, name))
    ):
        return
    names = ", ".join(sorted(REGISTRY[seam]))
    also = "; or MODULE:CLASS of your own" if seam in CONTRACTS else ""
    raise UnknownName(f"unknown {seam} {name!r}", hint=f"known: {names}{also}")


def resolve(seam: str, name: str) -> Any:
    """Import and return the class or object that is registered under this name.

    Raises UnknownName, MissingPackage if the class belongs to research, which is not
    installed, PluginFailed if a user's own class cannot be imported, and ClassRefused if it
    does not implement the seam's base class.
    """
    check_name(seam, name)
    location = REGISTRY[seam].get(name, "")
    if location.startswith(RESEARCH):
        import_optional_module(RESEARCH, f"the {WORDS.get(seam, seam)} {name}", "research")
    return _load(location) if location else _import_user_class(seam, name)


def _import_user_class(seam: str, name: str) -> Any:
    try:
        cls = _load(_find_entry_point(seam, name) or name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an imported module may raise anything, even SystemExit
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        hint = "put the module on the PYTHONPATH of workers and control; restart these"
        raise PluginFailed(f"the {WORDS[seam]} {name} {problem}", hint=hint, seam=seam, name=name) from error
    contract = _load(CONTRACTS[seam])
    if not (isinstance(cls, type) and issubclass(cls, contract)):
        problem = f"is no {contract.__module__}.{contract.__name__}"
        raise ClassRefused(f"the {WORDS[seam]} {name} {problem}", hint="docs/tutorials/searcher.md")
    if methods := sorted(getattr(cls, "__abstractmethods__", ())):
        problem = f"lacks methods of its contract: {', '.join(methods)}"
        raise ClassRefused(f"the {WORDS[seam]} {name} {problem}", hint="docs/tutorials/searcher.md")
    return cls


def _load(location: str) -> Any:
    module, _, attribute = location.partition(":")
    return getattr(import_module(module), attribute)


def _find_entry_point(seam: str, name: str) -> str:
    return next((entry.value for entry in entry_points(group=f"mallorn.{seam}", name=name)), "")


#: Libraries of each cost model besides numpy. Users' own models are assumed to have theirs.
LIBRARIES: Final[dict[str, frozenset[str]]] = {
    "automl": frozenset({"flaml", "lightgbm"}),
    "mlp": frozenset({"threadpoolctl"}),
    **dict.fromkeys(("lightgbm", "lightgbm-rank"), frozenset({"lightgbm"})),
    **dict.fromkeys(("forest", "lfbo", "headfirst"), frozenset({"sklearn"})),
    **dict.fromkeys(("tlp", "mtl-tlp", "gnn", "tree-lstm", "pacm"), frozenset({"torch"})),
    **dict.fromkeys(("xgboost", "kernel-time", "statements", "statements-rank"), frozenset({"xgboost"})),
    **dict.fromkeys(("residual", "value", "generator"), frozenset({"xgboost"})),
}
#: Models that consist of other models.
PARTS: Final = {
    "ensemble": ("draft", "xgboost", "lightgbm", "forest", "mlp"),
    "moa": ("tlp",),
    "tcl": ("tlp",),
}
EXTRAS: Final = dict.fromkeys(("flaml", "torch", RESEARCH), "research")  # all other libraries: `worker`


def libraries_of(cost_model: str) -> frozenset[str]:
    """Return the libraries that a cost model, and any models inside it, import; research
    counts as one."""
    own = LIBRARIES.get(cost_model, frozenset())
    if REGISTRY["cost_model"].get(cost_model, "").startswith(RESEARCH):
        own |= {RESEARCH}
    return own.union(*(libraries_of(part) for part in PARTS.get(cost_model, ())))


def list_runnable_cost_models() -> list[str]:
    """Return the registered cost models whose libraries are installed here."""
    installed = {name for name in {RESEARCH}.union(*LIBRARIES.values()) if find_spec(name)}
    return [name for name in REGISTRY["cost_model"] if libraries_of(name) <= installed]


def find_pip_extras(libraries: Iterable[str]) -> str:
    """Return the extras that install these libraries, as a comma-separated list for pip."""
    return ",".join(sorted({EXTRAS.get(name, "worker") for name in libraries}))
