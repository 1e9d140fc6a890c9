"""Finds versions of cost models, and goes back to earlier ones."""

from db.repositories.model_versions import ModelVersions
from mallorn.core.targets import parse_target
from services.coordinator.costmodels.schemas import CostModelOut
from services.coordinator.web.paging import PageOut
from services.coordinator.web.parts import Parts


def list_models(
    parts: Parts,
    family: str | None,
    target: str | None,
    name: str | None,
    version: int | None,
    active: bool | None,
    cursor: str | None,
    limit: int,
) -> PageOut[CostModelOut]:
    target_key = parse_target(target).key if target else None
    with parts.database.session() as session:
        page = ModelVersions(session).page(
            family=family,
            target=target_key,
            name=name,
            version=version,
            active=active,
            cursor=cursor,
            limit=limit,
        )
    return PageOut(items=[CostModelOut.of(found) for found in page.items], next_cursor=page.cursor)


def get_model(parts: Parts, version_id: int) -> CostModelOut:
    """Raises NotFound."""
    with parts.database.session() as session:
        return CostModelOut.of(ModelVersions(session).get(version_id))


def activate(parts: Parts, version_id: int) -> CostModelOut:
    """Raises NotFound."""
    with parts.database.transaction() as session:
        return CostModelOut.of(ModelVersions(session).activate(version_id))
