"""Cached rows of views that are expensive to compute."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Final

import zstandard
from sqlalchemy import select

from db.repositories.base import Repository
from db.tables import FeatureRow

_LEVEL: Final = 3
_MOST_BYTES: Final = 1 << 20
_KEY: Final = ("workload_id", "target_id", "view", "version", "tvm_version", "candidate")


@dataclass(frozen=True, slots=True)
class ViewOf:
    """The key of a cache: view and version, workload, target, and who lowers (as in `contexts.built_by`)."""

    workload_id: int
    target_id: int
    view: str
    version: int
    tvm_version: str


class Features(Repository):
    """Rows of little-endian float32 by candidate; None stands for a candidate that cannot be lowered."""

    def known(self, of: ViewOf, candidates: Collection[str]) -> dict[str, bytes | None]:
        """The stored rows of these candidates, by key."""
        same = [getattr(FeatureRow, name) == value for name, value in asdict(of).items()]
        unpack = zstandard.ZstdDecompressor().decompress
        some = self.among(FeatureRow.candidate, candidates)
        query = select(FeatureRow.candidate, FeatureRow.numbers).where(*same, some)
        return {
            key: None if packed is None else unpack(packed, max_output_size=_MOST_BYTES)
            for key, packed in self.session.execute(query)
        }

    def keep(self, of: ViewOf, rows: Mapping[str, bytes | None]) -> None:
        """Store rows by candidate; existing rows stay."""
        pack = zstandard.ZstdCompressor(level=_LEVEL).compress
        values = [
            asdict(of) | {"candidate": key, "numbers": None if row is None else pack(row)}
            for key, row in sorted(rows.items())
        ]
        if values:
            self.for_each(self.insert(FeatureRow).on_conflict_do_nothing(index_elements=list(_KEY)), values)
