"""Bases at work: what proposes for tasks of which nothing is known, and what a family's models stand on."""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

from sqlalchemy.orm import Session

from costmodels.base import CostModel
from costmodels.transfer_model_base import ManyDomains, TransferModel
from costmodels.views import VIEWS
from db.repositories.cost_models import BaseHead, CostModels
from db.repositories.targets import Targets
from db.repositories.workloads import Workloads
from db.tables import CostModelRow, Round
from mallorn.core.cost_model_name import CostModelName
from mallorn.core.errors import InvalidRequest, MallornError, PluginFailed
from mallorn.core.plugin_errors import blame_plugins
from mallorn.core.registry import resolve
from mallorn.core.target_distance import distance
from mallorn.core.targets import Target
from mallorn.core.values.machine import Machine
from workers.tvm.code_digest import builder


def model_of(row: CostModelRow) -> CostModel:
    """A stored cost model as a value, which nobody may fit: others were given the same."""
    return _loaded(row.name, row.blob)


@lru_cache(maxsize=8)  # a model takes 20 ms to load and is asked about many rounds before its next version
def _loaded(name: str, blob: bytes) -> CostModel:
    kind: type[CostModel] = resolve("cost_model", name)
    try:
        with blame_plugins(("cost_model", name)):
            return kind.load(blob)
    except InvalidRequest as error:  # bytes of another version, or damaged
        raise PluginFailed(error.message, hint=error.hint, seam="cost_model", name=name) from error


def view_of(name: str) -> str:
    """Return what models of this name read: the view with its version, and the builder that fills it.

    Views that need no compiler have no builder. Raises UnknownName, PluginFailed, MissingPackage.
    """
    kind: type[CostModel] = resolve("cost_model", name)
    view = VIEWS.get(kind.view)
    if view is None:  # a user's own, whose versions nobody counts
        return kind.view
    return f"{view.name}/{view.version}" + (f" {builder()}" if view.lowered else "")


def reads_todays_view(name: str, view: str) -> bool:
    """Return whether a stored model reads what its view is today; `view` as its trainer told it.

    Earlier versions told none. They all had the first version of each view, and other builders. A model whose
    class cannot be loaded passes: whoever loads it says why.
    """
    try:
        with blame_plugins(("cost_model", name)):
            today = view_of(name)
    except MallornError:
        return True
    return view == today or (not view and today in (f"{today.partition('/')[0]}/1", today.partition("/")[0]))


def beginning(
    session: Session, name: str, op: str, target_id: int, machine: Machine | None
) -> tuple[CostModel, CostModelName | None]:
    """Return a model that has learned nothing of a family yet, and the name of the base that it stands on.

    Residuals, momentum and heads take the newest active base that they can.
    """
    kind: type[CostModel] = resolve("cost_model", name)
    if issubclass(kind, (TransferModel, ManyDomains)):
        for head in bases_for(session, op, target_id):
            if kind.stands_on(resolve("cost_model", head.name.name)):
                return kind.on(model_of(CostModels(session).get(head.id))), head.name
    return kind.made_for(machine), None


def proposer(session: Session, row: Round, family: str, name: str) -> int | None:
    """The model that proposes a round: the family's own, or a base of the operator, of whatever cost model.

    The base steps in until the family has a model, and for tasks of which nothing was measured unless the
    family's model has learned from more. One that stands on a base speaks for both. A base of another target
    is only asked where this one has neither.
    """
    own = CostModels(session).head(family, row.target_id, name)
    if own is not None and not reads_todays_view(name, own.view):
        own = None  # until it is refitted from the same rows in today's view
    if own is not None and (row.seen_upto or own.base):
        return own.id
    op = Workloads(session).get(row.workload_id).op
    known = own_bases(session, op, row.target_id)
    if not known and own is None:
        known = _of_kin(session, op, row.target_id)
    base = min(known, key=lambda head: head.name.name != name, default=None)
    if base is None or (own is not None and own.rows > base.rows):
        return own.id if own else None
    return base.id


def bases_for(session: Session, op: str, target_id: int) -> Sequence[BaseHead]:
    """The bases of a target that this worker can use, or those of its kin."""
    return own_bases(session, op, target_id) or _of_kin(session, op, target_id)


def own_bases(session: Session, op: str, target_id: int) -> Sequence[BaseHead]:
    """Those of the target itself that this worker can use, the newest first."""
    return _usable(CostModels(session).bases(op, target_id))


def _of_kin(session: Session, op: str, target_id: int) -> Sequence[BaseHead]:
    """The bases of the nearest target that has any: what they know is a prior, and no more."""
    target = Target(Targets(session).get(target_id).text)
    near = [
        (far, found.head)
        for found in CostModels(session).bases_elsewhere(op, target_id)
        if (far := distance(target, Target(found.target))) is not None
    ]
    nearest = min((far for far, _ in near), default=None)
    return _usable([head for far, head in near if far == nearest])


def _usable(known: Sequence[BaseHead]) -> list[BaseHead]:
    """Return those whose library or registration this worker has, and whose view is today's."""
    usable = []
    for head in known:
        part = "cost_model", head.name.name
        with suppress(MallornError), blame_plugins(part):
            resolve(*part)()
            if reads_todays_view(head.name.name, head.view):
                usable.append(head)
    return usable
