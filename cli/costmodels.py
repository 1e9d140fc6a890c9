"""`mallorn costmodels`: lists trained cost models, and activates earlier versions."""

import itertools
from typing import Annotated, Final, cast

import typer

from mallorn.cli.find_client_and_job import open_reader
from mallorn.cli.terminal.output import (
    Address,
    JsonOption,
    Place,
    client,
    fact_table,
    print_json,
    print_note,
    print_rows,
    stdout,
)
from mallorn.client.coordinator_client import Client
from mallorn.core.cost_model_name import CostModelName
from mallorn.core.errors import Conflict, NotFound
from mallorn.core.values.cost_model_version import CostModelVersion
from mallorn.wording.format_values import Cell, Column, format_moment

COLUMNS: Final = (
    Column[CostModelVersion]("ID", lambda version: version.id),
    Column[CostModelVersion]("MODEL", lambda version: version.full_name),
    Column[CostModelVersion]("ACTIVE", lambda version: _active(version)),
    Column[CostModelVersion]("ROWS", lambda version: version.rows),
    Column[CostModelVersion]("TRAINED", lambda version: format_moment(version.created_at)),
    Column[CostModelVersion]("PARENT", lambda version: version.parent),
    Column[CostModelVersion]("SNAPSHOT", lambda version: version.snapshot),
    Column[CostModelVersion]("TARGET", lambda version: version.target, cut=True),
)
NONE_YET: Final = "no cost models match; jobs train them, and so does   mallorn costmodels pretrain"
LIST: Final = "mallorn costmodels list"
ModelArgument = Annotated[
    str, typer.Argument(metavar="COSTMODEL", help="An id, or FAMILY/NAME@VERSION as `list` shows it.")
]
TargetOption = Annotated[str | None, typer.Option("--target", help="Only models for this target.")]


def list_models(
    family: Annotated[str | None, typer.Option(help="Only models of this family.")] = None,
    target: TargetOption = None,
    name: Annotated[str | None, typer.Option(help="Only models that jobs name so, e.g. xgboost.")] = None,
    active: Annotated[bool, typer.Option("--active", help="Only those that new rounds use.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="List this many of the newest.")] = 50,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """List the versions of all cost models, newest first."""
    with open_reader(*place) as api:
        versions = api.cost_models(family=family, target=target, name=name, active=active or None)
        rows = list(itertools.islice(versions, limit))
    print_rows(rows, COLUMNS, as_json, NONE_YET)


def show(
    model: ModelArgument, target: TargetOption = None, as_json: JsonOption = False, *, place: Place
) -> None:
    """Show one version: what it learned from and how well it does."""
    with open_reader(*place) as api:
        version = _find_version(api, model, target)
    if as_json:
        return print_json(version)
    facts: dict[str, Cell] = {
        "id": version.id,
        "active": _active(version),
        "rows": version.rows,
        "trained": format_moment(version.created_at),
        "target": version.target,
        "parent": version.parent,
        "snapshot": version.snapshot,
        "seen up to": version.seen_upto,
    }
    for name, value in version.metrics.to_stored_json().items():
        if name != "splits":
            facts[name.replace("_", " ")] = cast(Cell, value)
    for split, figures in version.metrics.splits.items():
        if split != version.metrics.split:
            for name, value in figures.to_stored_json().items():
                facts[f"{name} {split}".replace("_", " ")] = cast(Cell, value)
    stdout().print(fact_table("MODEL", version.full_name, facts))


def activate(
    model: ModelArgument, target: TargetOption = None, as_json: JsonOption = False, *, address: Address
) -> None:
    """Make new rounds use a version, whatever its figures are."""
    with client(*address) as api:
        version = api.activate_cost_model(_find_version(api, model, target).id)
    _say_active(version, as_json)


def _say_active(version: CostModelVersion, as_json: bool) -> None:
    if as_json:
        return print_json(version)
    stdout().print(version.full_name)
    print_note("new rounds use it; rounds that have begun keep theirs, and later versions are kept")


def rollback(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="FAMILY/NAME: to the version before; FAMILY/NAME@VERSION or an id: to that one.",
        ),
    ],
    target: TargetOption = None,
    as_json: JsonOption = False,
    *,
    address: Address,
) -> None:
    """Make new rounds use an earlier version and training continue from it; later versions are kept."""
    with client(*address) as api:
        version = _find_version(api, model, target)
        if not model.isdecimal() and "@" not in model:  # the version before the active one
            versions = api.cost_models(family=version.family, name=version.name, target=version.target)
            older = [row for row in versions if row.version < version.version]
            if not older:
                raise Conflict(f"{version.full_name} has no earlier version", hint=LIST)
            version = max(older, key=lambda row: row.version)
        version = api.activate_cost_model(version.id)
    _say_active(version, as_json)


def _find_version(api: Client, model: str, target: str | None) -> CostModelVersion:
    """Return the named or active version. Raises NotFound, or Conflict if ambiguous."""
    if model.isdecimal():
        return api.cost_model(int(model))
    name = CostModelName.parse(model)
    active = True if name.version is None else None
    versions = list(api.cost_models(name.family, target, name.name, name.version, active))
    if not versions:
        raise NotFound(f"there is no cost model {model}", hint=LIST)
    if len(versions) > 1:
        targets = ", ".join(row.target for row in versions)
        message = f"the cost model {model} exists for {len(versions)} targets: {targets}"
        raise Conflict(message, hint=f"add   --target '{versions[0].target}'")
    return versions[0]


def _active(version: CostModelVersion) -> str:
    return "yes" if version.active else "no"
