"""Libraries that earlier jobs ended with: the same model with the same schedules is compiled once.

They are their owner's alone, and lie where no child process writes: each use is a copy.
"""

import json
import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest, sha256
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

from pydantic import TypeAdapter

from graphc.export.zip_graphc import digest
from mallorn.core.version import VERSION
from workers.finish.winners import Winner
from workers.interfaces.model_compiler import Compiled
from workers.process.leased_stage import StageContext

MOST_BYTES: Final = 1 << 30  # of all; the one that was used last goes last
_ABOUT: Final = TypeAdapter(tuple[str, Compiled])  # and its digest
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownLibraries:
    """Those of one owner's model for one target, by one compiler."""

    folder: Path

    @classmethod
    def of(cls, claimed: StageContext) -> Self:
        """Of the job's model as its import found it."""
        job, compiler = claimed.job, (VERSION, digest(), version("apache-tvm"))
        graph = claimed.graph.model_dump(mode="json", include={"recipe", "dynamic"})
        asked = claimed.target.text, claimed.options.input_shapes
        text = json.dumps([job.owner, job.model_id, graph, asked, compiler])
        name = sha256(text.encode()).hexdigest()
        return cls(claimed.runtime.settings.data_dir / "libraries" / name)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return any(self.folder.glob("*.so"))

    def take(self, winners: Sequence[Winner], library: Path) -> Compiled | None:
        """Copy the one with these schedules; None where there is none."""
        stored = self._stored(winners)
        with suppress(OSError, ValueError):
            digest, found = _ABOUT.validate_json(stored.with_suffix(".json").read_bytes())
            shutil.copyfile(stored, library)
            if _digest(library) == digest:
                stored.touch()
                return found
        with suppress(OSError):
            stored.unlink()  # torn
        return None

    def put(self, winners: Sequence[Winner], library: Path, compiled: Compiled) -> None:
        """Keep one for the next job, if there is room."""
        stored = self._stored(winners)
        if stored.exists() or compiled.bytes > MOST_BYTES:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=self.folder) as draft:  # others may put the same
                part = Path(draft, stored.name)
                shutil.copyfile(library, part)
                part.with_suffix(".json").write_bytes(_ABOUT.dump_json((_digest(part), compiled)))
                for kind in (".json", ".so"):
                    part.with_suffix(kind).rename(stored.with_suffix(kind))
            _forget_oldest(self.folder.parent)
        except OSError as error:
            log.warning("the library is not kept: %s", error)

    def _stored(self, winners: Sequence[Winner]) -> Path:
        schedules = sorted((winner.contest.program.key, winner.trace) for winner in winners)
        name = sha256(json.dumps(schedules).encode()).hexdigest()
        return self.folder / f"{name}.so"


def _digest(library: Path) -> str:
    with library.open("rb") as content:
        return file_digest(content, "sha256").hexdigest()


def _forget_oldest(root: Path) -> None:
    found = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in root.glob("*/*.so"))
    excess = sum(size for _, size, _ in found) - MOST_BYTES
    for _, size, file in found:
        if excess <= 0:
            return
        for each in (file, file.with_suffix(".json")):
            each.unlink(missing_ok=True)  # another worker may be faster
        excess -= size
