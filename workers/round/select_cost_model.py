"""Select the cost model of a round or training: the task family's, or a pre-trained base."""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

from sqlalchemy.orm import Session

from mallorn.core.check_plugin_classes import convert_plugin_errors
from mallorn.core.cost_model_name import CostModelName
from mallorn.core.errors import InvalidRequest, MallornError, PluginFailed
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import resolve
from mallorn.core.states import OFF
from mallorn.core.target_distance import distance
from mallorn.core.targets import Target
from mallorn.core.values.decision_log import SkippedPart
from mallorn.core.values.machine import Machine
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.views import VIEWS
from mallorn.db.repositories.cost_models import BaseHead, CostModels
from mallorn.db.repositories.targets import Targets
from mallorn.db.tables import CostModelRow, Round
from mallorn.workers.host.code_digest import current_code_name


def model_of(row: CostModelRow) -> CostModel:
    """Return a stored cost model; it is cached and shared, so do not fit it. Raises
    PluginFailed if its class or its bytes cannot be loaded."""
    return _load(row.name, row.blob)


@lru_cache(maxsize=8)  # a model takes 20 ms to load and is used in many rounds
def _load(name: str, blob: bytes) -> CostModel:
    kind: type[CostModel] = resolve("cost_model", name)
    try:
        with convert_plugin_errors(("cost_model", name)):
            return kind.load(blob)
    except InvalidRequest as error:  # bytes of another version, or damaged
        raise PluginFailed(error.message, hint=error.hint, seam="cost_model", name=name) from error


def current_feature_view(name: str) -> str:
    """Return the feature view that a cost-model class reads: its name, its version and, if
    its features need lowered code, this worker's code. Raises UnknownName if there is no
    such class, PluginFailed if a plugin fails, MissingPackage if its library is missing."""
    kind: type[CostModel] = resolve("cost_model", name)
    view = VIEWS.get(kind.view)
    if view is None:  # a user's own view, which has no version
        return kind.view
    return f"{view.name}/{view.version}" + (f" {current_code_name()}" if view.lowered else "")


def reads_current_view(name: str, view: str) -> bool:
    """Return whether a stored model's feature view (set of features), as recorded in
    training, is the one that its class reads now. A model of an earlier release, which
    recorded none, reads version 1. True if the class cannot be loaded: loading says why."""
    try:
        with convert_plugin_errors(("cost_model", name)):
            current = current_feature_view(name)
    except MallornError:
        return True
    name_only = current.partition("/")[0]
    return view == current or (not view and current in (f"{name_only}/1", name_only))


def create_untrained_model(
    session: Session, options: JobOptions, op: str, target_id: int, machine: Machine | None
) -> tuple[CostModel, CostModelName | None]:
    """Return an untrained model for a task family, and the name of the base (pre-trained)
    model that it builds on. A class with `builds_on_base` gets the newest active base that
    it can extend; other classes and jobs with `dataset=off` get none."""
    kind: type[CostModel] = resolve("cost_model", options.cost_model)
    if kind.builds_on_base and options.dataset != OFF:
        for head in own_bases(session, op, target_id) or _nearest_bases(session, op, target_id):
            if kind.can_extend(resolve("cost_model", head.name.name)):
                return kind.from_base(model_of(CostModels(session).get(head.id))), head.name
    return kind.made_for(machine), None


def create_unfitted_model(name: str, skipped_parts: Sequence[SkippedPart]) -> CostModel | None:
    """Return a model that was never fitted; None if its class does not rank without
    measurements, does not load (training warns of that), or failed in an earlier attempt."""
    if name in {part.name for part in skipped_parts}:
        return None
    with suppress(MallornError), convert_plugin_errors(("cost_model", name)):
        kind: type[CostModel] = resolve("cost_model", name)
        return kind() if kind.orders_unfitted else None
    return None


def select_ranking_model(
    session: Session, row: Round, family: str, op: str, options: JobOptions
) -> int | None:
    """Return the id of the cost model that ranks a round's candidates: the task family's
    own, or a base (pre-trained) model of the operator, of any cost-model class.

    A base model is used until the family has a model, and for tasks without measurements
    unless the family's model builds on a base or was trained on more rows. A base of
    another target is used only if this target has neither, none in jobs with `dataset=off`.
    """
    name = options.cost_model
    own = CostModels(session).head(family, row.target_id, name)
    if own is not None and not reads_current_view(name, own.view):
        own = None  # unusable until it is refitted from the same rows in the present view
    if options.dataset == OFF or (own is not None and (row.seen_upto or own.base)):
        return own.id if own else None
    bases = own_bases(session, op, row.target_id)
    if not bases and own is None:
        bases = _nearest_bases(session, op, row.target_id)
    base = min(bases, key=lambda head: head.name.name != name, default=None)
    if base is None or (own is not None and own.rows > base.rows):
        return own.id if own else None
    return base.id


def own_bases(session: Session, op: str, target_id: int) -> Sequence[BaseHead]:
    """Return the target's own base models that this worker can use, the newest first."""
    return _usable(CostModels(session).bases(op, target_id))


def _nearest_bases(session: Session, op: str, target_id: int) -> Sequence[BaseHead]:
    target = Target(Targets(session).get(target_id).text)
    candidates = [
        (gap, base)
        for base in CostModels(session).list_bases_of_other_targets(op, target_id)
        if (gap := distance(target, Target(base.target))) is not None
    ]
    nearest = min((gap for gap, _ in candidates), default=None)
    return _usable([base for gap, base in candidates if gap == nearest])


def _usable(bases: Sequence[BaseHead]) -> list[BaseHead]:
    """Return the base models whose class loads here and reads the view of its training."""
    usable = []
    for head in bases:
        name = head.name.name
        with suppress(MallornError), convert_plugin_errors(("cost_model", name)):
            resolve("cost_model", name)()
            if reads_current_view(name, head.view):
                usable.append(head)
    return usable
