"""Libraries that earlier jobs ended with: the same model with the same schedules is compiled once.

They are their owner's alone, and lie where no child process writes: each use is a copy. An entry appears and
goes as a whole, by being renamed. A draft is locked while its writer lives, so that the next one removes
what a killed writer left. Workers ask the database which owners still have the model.
"""

import json
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from shutil import copyfileobj
from typing import Final, Self

from pydantic import TypeAdapter

from db.repositories.uploaded_models import Models
from db.session import Database
from mallorn.core.locked_folders import left_by_the_dead, locked_folder, remove_tree
from workers.finish.winners import Winner
from workers.interfaces.model_compiler import Compiled
from workers.process.leased_stage import StageContext
from workers.sandbox.untrusted_files import CHUNK_BYTES, TamperedFile, copy_out
from workers.tvm.code_digest import builder

MOST_BYTES: Final = 1 << 30  # of all; the one that was used last goes last
LIBRARIES: Final = "libraries"  # in a worker's data directory
DRAFT: Final = "draft-"
LIBRARY, ABOUT = "library.so", "about.json"  # of an entry
_ABOUT: Final = TypeAdapter(tuple[str, Compiled])  # and its digest
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownLibraries:
    """Those of one owner's model for one target, by one builder."""

    folder: Path  # of the owner's model
    made_for: str  # target and builder, as a digest

    @classmethod
    def of(cls, claimed: StageContext) -> Self:
        job = claimed.job
        graph = claimed.graph.model_dump(mode="json", include={"recipe", "dynamic"})
        asked = claimed.target.text, claimed.options.input_shapes
        made_for = _digest_of(graph, asked, builder())
        root = claimed.runtime.settings.data_dir / LIBRARIES
        return cls(root / _folder_name(job.model_id, job.owner), made_for)

    def __bool__(self) -> bool:
        return any(self.folder.glob(f"{self.made_for}-*"))

    def take(self, winners: Sequence[Winner], library: Path) -> Compiled | None:
        """Copy the one with these schedules to where no child writes; None where there is none."""
        entry = self._entry(winners)
        try:
            wanted, compiled = _ABOUT.validate_json((entry / ABOUT).read_bytes())
            stored = (entry / LIBRARY).open("rb")
        except (FileNotFoundError, NotADirectoryError, ValueError):
            self.forget(winners)  # a power cut may have left half of it
            return None
        except OSError as error:
            log.warning("the kept library %s is not read: %s", entry, error)
            return None
        try:
            with stored, library.open("w+b") as copy:
                copyfileobj(stored, copy, CHUNK_BYTES)
                copy.seek(0)
                is_whole = file_digest(copy, "sha256").hexdigest() == wanted
            os.utime(entry)
        except OSError as error:  # of this host: the entry is none the worse
            log.warning("the kept library %s is not copied: %s", entry, error)
            return None
        if is_whole:
            return compiled
        self.forget(winners)
        return None

    def put(self, winners: Sequence[Winner], library: Path, compiled: Compiled) -> None:
        """Keep one for the next job, if there is room. The library lies where a child may write."""
        entry, root = self._entry(winners), self.folder.parent
        if entry.exists() or compiled.bytes > MOST_BYTES:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _remove_dead_drafts(root)
            with locked_folder(root, DRAFT) as draft:
                made = draft / "entry"
                made.mkdir()
                found = copy_out(library.parent, library.name, made / LIBRARY, MOST_BYTES)
                (made / ABOUT).write_bytes(_ABOUT.dump_json((found, compiled)))
                made.rename(entry)
            _forget_oldest(root)
        except (OSError, TamperedFile) as error:
            log.warning("the library is not kept: %s", error)

    def forget(self, winners: Sequence[Winner]) -> None:
        """Remove the one with these schedules, which is torn or computes something else."""
        _remove(self._entry(winners))

    def _entry(self, winners: Sequence[Winner]) -> Path:
        schedules = sorted((winner.contest.program.key, winner.trace) for winner in winners)
        return self.folder / f"{self.made_for}-{_digest_of(schedules)}"


def forget_deleted(data_dir: Path, database: Database) -> None:
    """Remove libraries of models that their owners do not have any more, and drafts of killed writers."""
    root = data_dir / LIBRARIES
    if not root.is_dir():
        return
    _remove_dead_drafts(root)
    folders = [folder for folder in root.iterdir() if not folder.name.startswith(DRAFT)]
    models = {folder.name.partition("-")[0] for folder in folders}
    with database.session() as session:
        kept = {_folder_name(*each) for each in Models(session).owners(models)}
    for folder in folders:
        if folder.name not in kept:
            remove_tree(folder)


def _folder_name(model_id: str, owner: str) -> str:
    """The owner's name does not stand there: it can be erased."""
    return f"{model_id}-{_digest_of(owner)}"


def _digest_of(*values: object) -> str:
    return sha256(json.dumps(values).encode()).hexdigest()[:32]


def _remove_dead_drafts(root: Path) -> None:
    for draft in left_by_the_dead(DRAFT, root):
        remove_tree(draft)


def _remove(entry: Path) -> None:
    """Take an entry away as a whole; another worker may be faster."""
    with suppress(OSError), locked_folder(entry.parent.parent, DRAFT) as trash:
        entry.rename(trash / "entry")


def _forget_oldest(root: Path) -> None:
    found: list[tuple[float, int, Path]] = []
    for entry in root.glob("*/*-*"):
        with suppress(OSError):  # another worker just removed it
            found.append((entry.stat().st_mtime, (entry / LIBRARY).stat().st_size, entry))
    excess = sum(size for _, size, _ in found) - MOST_BYTES
    for _, size, entry in sorted(found):
        if excess <= 0:
            return
        _remove(entry)
        excess -= size
