"""Registry of what a user can choose by name, and the libraries that each choice needs.

A `seam` is a kind of choice, usually a job option such as `search`. Installed packages add
names by entry points in the group ``mallorn.SEAM``; mallorn-research is such a package. A
user's own class may also be named MODULE:CLASS.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Final

from mallorn.core.errors import ClassRefused, PluginFailed, UnknownName
from mallorn.core.installation import RESEARCH, missing_package
from mallorn.core.target_kind import TargetKind

REGISTRY: Final[dict[str, dict[str, str]]] = {
    "search": {
        "evolutionary": "mallorn.searchers.algorithms.evolutionary:Evolutionary",
        "ga": "mallorn.searchers.algorithms.genetic_algorithm:Genetic",
        "sa": "mallorn.searchers.algorithms.simulated_annealing:Annealing",
        "portfolio": "mallorn.searchers.algorithms.portfolio:Portfolio",
        "reinforce": "mallorn.searchers.algorithms.reinforce:Reinforce",
        "roller": "mallorn.searchers.algorithms.roller:Roller",
        "random": "mallorn.searchers.algorithms.random:RandomSearch",
    },
    "sampler": {
        "topk": "mallorn.searchers.pooled_searcher:TopK",
        "contextual": "mallorn.searchers.pooled_searcher:Contextual",
    },
    "cost_model": {
        "xgboost": "mallorn.costmodels.xgboost_models:XGBoost",
        "lightgbm": "mallorn.costmodels.lightgbm_models:LightGBM",
        "lightgbm-rank": "mallorn.costmodels.lightgbm_models:LightGBMRank",
        "kernel-time": "mallorn.costmodels.xgboost_models:KernelTime",
        "tuna": "mallorn.costmodels.analytic_models:Tuna",
        "draft": "mallorn.costmodels.analytic_models:Draft",
        "random": "mallorn.costmodels.random:RandomModel",
    },
    "features": {"decisions": "mallorn.workers.features.feature_extractor:AlignedDecisions"},
    "lowered_features": {  # feature views that the compiler process computes
        "statements": "mallorn.workers.tvm.space.lowered_views:describe_statements",
        "code": "mallorn.workers.tvm.space.lowered_views:describe_code",
        "executed": "mallorn.workers.tvm.space.lowered_views:describe_executed",
    },
    "kind": {  # of hardware; each adds names of its own to other seams
        "x86": "mallorn.kinds.x86.kind:X86",
        "aarch64": "mallorn.kinds.aarch64.kind:Aarch64",
        "cuda": "mallorn.kinds.cuda.kind:Cuda",
    },
    "stopping": {
        "fixed": "mallorn.workers.measure.stopping:Fixed",
        "adaptive": "mallorn.workers.measure.stopping.adaptive:Adaptive",
        "racing": "mallorn.workers.measure.stopping.adaptive:Racing",
    },
    "measurer": {
        "tvm": "mallorn.workers.measure.tvm_measurer:TvmMeasurer",
        "detached": "mallorn.workers.measure.measurer_interface:DetachedMeasurer",
    },
    "finish_step": {  # steps that a job's option of the same name adds to its finish
        "contention": "mallorn.workers.finish.choose_under_load:choose_schedules_under_load",
    },
    "policy": {
        "dynatune": "mallorn.services.planner.dynatune:DynaTune",
        "familyseer": "mallorn.services.planner.familyseer:FamilySeer",
        "gradient": "mallorn.services.planner.ansor_gradient:Gradient",
        "random": "mallorn.services.planner.baseline_policies:RandomChoice",
        "round-robin": "mallorn.services.planner.baseline_policies:RoundRobin",
    },
    "families": {
        "none": "mallorn.services.planner.families.base:NoFamilies",
        "operator": "mallorn.services.planner.families.base:ByOperator",
        "structure": "mallorn.services.planner.families.base:ByStructure",
    },
    "recipe": {
        "tuned": "mallorn.workers.tvm.network.graph_recipes:TUNED",
        "direct": "mallorn.workers.tvm.network.graph_recipes:DIRECT",
        "plain": "mallorn.workers.tvm.network.graph_recipes:PLAIN",
    },
}

#: What mallorn-research brings, by seam, and the extra of that package which a name needs. A
#: process without the package checks names by this table and says how to install it.
RESEARCH_NAMES: Final[dict[str, Mapping[str, str]]] = {
    "search": dict.fromkeys(
        ("beam", "bo", "es", "felix", "generator", "guided", "mcts", "ppo", "qlearning"), ""
    ),
    "sampler": dict.fromkeys(("clustered", "diverse"), ""),
    "cost_model": {
        **dict.fromkeys(("forest", "generator", "headfirst", "lfbo", "mlp", "residual"), ""),
        **dict.fromkeys(("statements", "statements-rank", "static", "value"), ""),
        **dict.fromkeys(("gnn", "moa", "mtl-tlp", "pacm", "tcl", "tlp", "tree-lstm"), "torch"),
        "automl": "flaml",
    },
    "features": dict.fromkeys(("loops", "primitives"), ""),
    "measurer": dict.fromkeys(("replay", "simulated"), ""),
    "families": {"dynamic": ""},
    "importer": {"tuner-logs": ""},
    "commands": {"record": "", "dataset.generate": "", "costmodels.evaluate": "", "costmodels.pretrain": ""},
}

#: Measurers that are virtual devices: they look up or compute times and need no hardware.
#: Their jobs have targets of their own (mallorn.core.virtual_devices).
VIRTUAL_DEVICES: Final = frozenset({"replay", "simulated"})

#: Seams whose classes the planner runs, which is installed with the coordinator.
PLANNER_SEAMS: Final = frozenset({"families", "policy"})

#: Base class that a user's own class must have, by seam. WORDS names the seams in messages.
CONTRACTS: Final = {
    "search": "mallorn.searchers.base:Searcher",
    "sampler": "mallorn.searchers.sampler:Sampler",
    "cost_model": "mallorn.costmodels.base:CostModel",
    "features": "mallorn.workers.features.feature_extractor:Extractor",
    "stopping": "mallorn.workers.measure.stopping:StoppingRule",
    "measurer": "mallorn.workers.measure.measurer_interface:Measurer",
    "policy": "mallorn.services.planner.policy:Policy",
    "families": "mallorn.services.planner.families.base:Families",
}
WORDS: Final = {
    "search": "searcher",
    "sampler": "sampler",
    "cost_model": "cost model",
    "features": "feature view",
    "stopping": "stopping rule",
    "measurer": "measurer",
    "policy": "task policy",
    "families": "grouping of tasks",
    "importer": "importer",
    "commands": "command",
}
_CLASS_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_RESEARCH_MODULE: Final = RESEARCH.replace("-", "_")


@cache
def list_kinds() -> Sequence[TargetKind]:
    """Return the kinds of hardware, without those of packages that do not load."""
    return [kind for kind in _load_kinds().values() if not isinstance(kind, PluginFailed)]


def failed_kinds() -> Sequence[PluginFailed]:
    """Return why kinds of hardware of installed packages do not load."""
    return [kind for kind in _load_kinds().values() if isinstance(kind, PluginFailed)]


@cache
def _load_kinds() -> Mapping[str, TargetKind | PluginFailed]:
    places = {**find_plugins("kind"), **REGISTRY["kind"]}
    return {name: _load_kind(name, place) for name, place in places.items()}


def _load_kind(name: str, location: str) -> TargetKind | PluginFailed:
    try:
        kind: TargetKind = _load(location)()
        _ = kind.part, kind.name, kind.tvm_kinds, kind.example  # a kind has all
    except BaseException as error:  # an imported module may raise anything, even SystemExit
        if name in REGISTRY["kind"] or isinstance(error, KeyboardInterrupt):
            raise
        reason = f"does not load: {type(error).__name__}: {error}"
        return PluginFailed(f"the kind of hardware {name} {reason}", hint=f"repair {location}")
    return kind


def locations(seam: str) -> Mapping[str, str]:
    """Return MODULE:CLASS by name: the service's, and what kinds of hardware add."""
    added = (
        {} if seam == "kind" else {k: v for kind in list_kinds() for k, v in kind.names.get(seam, {}).items()}
    )
    return {**added, **REGISTRY.get(seam, {})}


def list_names(seam: str) -> list[str]:
    """Return the names of the service and of mallorn-research, whether it is installed or not."""
    return sorted({*locations(seam), *RESEARCH_NAMES.get(seam, ())})


@cache
def find_plugins(seam: str) -> Mapping[str, str]:
    """Return what installed packages declare in the group ``mallorn.SEAM``: locations by name."""
    return {entry.name: entry.value for entry in entry_points(group=f"mallorn.{seam}")}


def check_name(seam: str, name: str) -> None:
    """Raise UnknownName, with all known names, unless `name` is listed, installed or MODULE:CLASS.

    A user's own class is not imported here: only the process that runs it must have it.
    Classes of Mallorn are accepted only by their registered name.
    """
    names = list_names(seam)
    if name in names or (seam in WORDS and name in find_plugins(seam)):
        return
    if name in locations(seam).values() or name.startswith(f"{_RESEARCH_MODULE}."):
        short_name = find_name(seam, name)
        hint = f"known: {short_name or ', '.join(names)}"
        raise UnknownName(f"{name} has a short name; use that", hint=hint)
    if seam in CONTRACTS and _CLASS_PATH.fullmatch(name):
        return
    also = "; or MODULE:CLASS of your own" if seam in CONTRACTS else ""
    raise UnknownName(f"unknown {seam} {name!r}", hint=f"known: {', '.join(names)}{also}")


def find_name(seam: str, location: str) -> str | None:
    """Return the name under which MODULE:CLASS is registered or installed; None if it is not."""
    pairs = {**find_plugins(seam), **locations(seam)}.items()
    return next((name for name, known_location in pairs if known_location == location), None)


def resolve(seam: str, name: str) -> Any:
    """Import and return the class or object that is registered under this name.

    Raises UnknownName, MissingPackage if mallorn-research brings the name and is not
    installed, PluginFailed if a user's own class cannot be imported, and ClassRefused if it
    does not implement the seam's base class.
    """
    check_name(seam, name)
    if location := locations(seam).get(name):
        return _load(location)
    if name not in RESEARCH_NAMES.get(seam, {}):
        return _import_user_class(seam, name)
    if (location := find_plugins(seam).get(name)) and find_spec(_RESEARCH_MODULE):
        return _load(location)
    message = f"the {WORDS[seam]} {name.replace('.', ' ')} needs {RESEARCH}, which is not installed"
    raise missing_package(message, RESEARCH_NAMES[seam][name], package=RESEARCH)


def _import_user_class(seam: str, name: str) -> Any:
    try:
        cls = _load(find_plugins(seam).get(name, name))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an imported module may raise anything, even SystemExit
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        hint = "put the module on the PYTHONPATH of workers and control; restart these"
        raise PluginFailed(f"the {WORDS[seam]} {name} {problem}", hint=hint, seam=seam, name=name) from error
    if seam not in CONTRACTS:
        return cls
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


def libraries_of(name: str, seam: str = "cost_model") -> frozenset[str]:
    """Return what a choice needs besides Mallorn: mallorn-research, and a library of its extras."""
    extra = RESEARCH_NAMES.get(seam, {}).get(name)
    return frozenset() if extra is None else frozenset({RESEARCH, extra} - {""})


def list_runnable_cost_models() -> list[str]:
    """Return the cost models, also of plug-ins, whose libraries are installed here."""
    names = {*list_names("cost_model"), *find_plugins("cost_model")}
    libraries = frozenset[str]().union(*map(libraries_of, names))
    missing = {name for name in libraries if find_spec(name.replace("-", "_")) is None}
    return sorted(name for name in names if not libraries_of(name) & missing)
