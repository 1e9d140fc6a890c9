"""Cache of candidates' features in views that are expensive to compute."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Final

import zstandard
from sqlalchemy import select

from mallorn.db.repositories.base import Repository
from mallorn.db.tables import FeatureRow

_LEVEL: Final = 3
_MOST_BYTES: Final = 1 << 20
_KEY: Final = ("workload_id", "target_id", "view", "version", "tvm_version", "candidate")


@dataclass(frozen=True, slots=True)
class FeatureSource:
    """Cache key except the candidate: workload, target, view and version, and compiler."""

    workload_id: int
    target_id: int
    view: str
    version: int
    tvm_version: str


class Features(Repository):
    """Features by candidate, as little-endian float32; None if it cannot be lowered."""

    def read(self, source: FeatureSource, candidates: Collection[str]) -> dict[str, bytes | None]:
        conditions = [getattr(FeatureRow, name) == value for name, value in asdict(source).items()]
        unpack = zstandard.ZstdDecompressor().decompress
        is_candidate = self.is_among(FeatureRow.candidate, candidates)
        query = select(FeatureRow.candidate, FeatureRow.numbers).where(*conditions, is_candidate)
        return {
            key: None if numbers is None else unpack(numbers, max_output_size=_MOST_BYTES)
            for key, numbers in self.session.execute(query)
        }

    def store(self, source: FeatureSource, rows: Mapping[str, bytes | None]) -> None:
        """Store features by candidate; rows that exist already do not change."""
        pack = zstandard.ZstdCompressor(level=_LEVEL).compress
        values = [
            asdict(source) | {"candidate": key, "numbers": None if row is None else pack(row)}
            for key, row in sorted(rows.items())
        ]
        if values:
            self.execute_for_rows(self.insert(FeatureRow).on_conflict_do_nothing(index_elements=_KEY), values)
