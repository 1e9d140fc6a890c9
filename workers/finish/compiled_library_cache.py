"""A cache of compiled libraries: the same model and schedules are compiled only once.

Each owner has separate entries, in a folder that no child process can write to; users of an
entry get a copy. Entries are written in a locked draft folder and then renamed, so they
appear and vanish atomically, and another worker can remove the draft of a killed writer.
Workers ask the database which owners still have the model.
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

from mallorn.core.locked_folders import lock_abandoned_folders, locked_folder, remove_tree
from mallorn.core.private_files import make_private_directory
from mallorn.db.repositories.stored_files import Models
from mallorn.db.session import Database
from mallorn.workers.finish.choose_winner import Winner
from mallorn.workers.host.code_digest import current_builder_name
from mallorn.workers.interfaces.model_compiler import Compiled
from mallorn.workers.process.leased_work import LeasedStage
from mallorn.workers.sandbox.untrusted_files import CHUNK_BYTES, TamperedFile, copy_out

MOST_BYTES: Final = 1 << 30  # of all entries; the least recently used are removed first
LIBRARIES: Final = "libraries"  # in a worker's data directory
DRAFT: Final = "draft-"
LIBRARY, ABOUT = "library.so", "about.json"  # files of an entry
_ABOUT: Final = TypeAdapter(tuple[str, Compiled])  # the library's digest, and its description
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownLibraries:
    """Cached libraries of one owner's model, target and version of the compiling code."""

    folder: Path  # of the owner's model
    made_for: str  # target and builder, as a digest
    limit_bytes: int = MOST_BYTES

    @classmethod
    def of(cls, stage: LeasedStage) -> Self:
        job = stage.job
        graph = stage.graph_report.model_dump(mode="json", include={"recipe", "dynamic"})
        target_and_shapes = stage.target.text, stage.options.input_shapes
        made_for = _digest_of(graph, target_and_shapes, current_builder_name(stage.target.toolchain))
        root = stage.runtime.settings.data_dir / LIBRARIES
        return cls(root / folder_name(job.model_id, job.owner), made_for)

    def __bool__(self) -> bool:
        return any(self.folder.glob(f"{self.made_for}-*"))

    def copy_cached_library(self, winners: Sequence[Winner], library: Path) -> Compiled | None:
        """Copy the entry with these schedules to `library`; None if it is missing or damaged."""
        entry = self.entry_of(winners)
        try:
            digest, compiled = _ABOUT.validate_json((entry / ABOUT).read_bytes())
            library_file = (entry / LIBRARY).open("rb")
        except (FileNotFoundError, NotADirectoryError, ValueError):
            self.remove_library(winners)  # a power cut may have truncated it
            return None
        except OSError as error:
            log.warning("the cached library %s could not be read: %s", entry, error)
            return None
        try:
            with library_file, library.open("w+b") as copy:
                copyfileobj(library_file, copy, CHUNK_BYTES)
                copy.seek(0)
                is_intact = file_digest(copy, "sha256").hexdigest() == digest
            os.utime(entry)
        except OSError as error:  # the host's fault: keep the entry
            log.warning("the cached library %s could not be copied: %s", entry, error)
            return None
        if is_intact:
            return compiled
        self.remove_library(winners)
        return None

    def store_library(self, winners: Sequence[Winner], library: Path, compiled: Compiled) -> None:
        """Copy a library into the cache, and remove the least recently used entries."""
        entry, root = self.entry_of(winners), self.folder.parent
        if entry.exists() or compiled.bytes > self.limit_bytes:
            return
        try:
            make_private_directory(self.folder)
            _remove_dead_drafts(root)
            with locked_folder(root, DRAFT) as draft:
                entry_draft = draft / "entry"
                entry_draft.mkdir()
                digest = copy_out(library.parent, library.name, entry_draft / LIBRARY, self.limit_bytes)
                (entry_draft / ABOUT).write_bytes(_ABOUT.dump_json((digest, compiled)))
                entry_draft.rename(entry)
            entries: list[tuple[float, int, Path]] = []
            for path in root.glob("*/*-*"):
                with suppress(OSError):  # another worker just removed it
                    entries.append((path.stat().st_mtime, (path / LIBRARY).stat().st_size, path))
            excess = sum(size for _, size, _ in entries) - self.limit_bytes
            for _, size, oldest in sorted(entries):
                if excess <= 0:
                    break
                remove_entry(oldest)
                excess -= size
        except (OSError, TamperedFile) as error:
            log.warning("the library was not added to the cache: %s", error)

    def remove_library(self, winners: Sequence[Winner]) -> None:
        """Remove the entry with these schedules, which is damaged or wrong."""
        remove_entry(self.entry_of(winners))

    def entry_of(self, winners: Sequence[Winner]) -> Path:
        schedules = sorted((winner.contest.program.key, winner.trace) for winner in winners)
        return self.folder / f"{self.made_for}-{_digest_of(schedules)}"


def remove_deleted_models(data_dir: Path, database: Database) -> None:
    """Remove libraries of deleted models, and drafts of killed writers."""
    root = data_dir / LIBRARIES
    if not root.is_dir():
        return
    _remove_dead_drafts(root)
    folders = [folder for folder in root.iterdir() if not folder.name.startswith(DRAFT)]
    models = {folder.name.partition("-")[0] for folder in folders}
    with database.session() as session:
        folder_names = {folder_name(model, owner) for model, owner in Models(session).owners(models)}
    for folder in folders:
        if folder.name not in folder_names:
            remove_tree(folder)


def folder_name(model_id: str, owner: str) -> str:
    """Name a folder by a digest of the owner's name, so that the name can be erased."""
    return f"{model_id}-{_digest_of(owner)}"


def _digest_of(*values: object) -> str:
    return sha256(json.dumps(values).encode()).hexdigest()[:32]


def _remove_dead_drafts(root: Path) -> None:
    for draft in lock_abandoned_folders(DRAFT, root):
        remove_tree(draft)


def remove_entry(entry: Path) -> None:
    with suppress(OSError), locked_folder(entry.parent.parent, DRAFT) as trash:
        entry.rename(trash / "entry")
