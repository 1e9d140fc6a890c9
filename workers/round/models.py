"""Stored cost models as values."""

from functools import lru_cache

from costmodels.base import CostModel
from db.tables import CostModelRow
from mallorn.core.errors import InvalidRequest, PluginFailed
from mallorn.core.names import resolve
from mallorn.core.plugins import blaming


def model_of(row: CostModelRow) -> CostModel:
    """A stored cost model as a value, which nobody may fit: others were given the same."""
    return _loaded(row.name, row.blob)


@lru_cache(maxsize=8)  # a model takes 20 ms to load and is asked about many rounds before its next version
def _loaded(name: str, blob: bytes) -> CostModel:
    kind: type[CostModel] = resolve("cost_model", name)
    try:
        with blaming(("cost_model", name)):
            return kind.load(blob)
    except InvalidRequest as error:  # bytes of another version, or damaged
        raise PluginFailed(error.message, hint=error.hint, seam="cost_model", name=name) from error
