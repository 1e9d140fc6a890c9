"""A directory of schedules as the local commands read it: its manifest, target and version."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.targets import LOCAL, Target, parse_target
from mallorn.core.values.dynamic import Dynamic
from mallorn.core.values.graph import StoredRecipe
from mallorn.core.values.manifest import DATABASE, MANIFEST, Version, read_manifest


@dataclass(frozen=True)
class Exported:
    """What a directory's schedules were tuned for and after which graph passes."""

    directory: Path
    target: Target
    recipe: StoredRecipe
    input_shapes: dict[str, list[int]]
    input_ranges: dict[str, list[int]]  # of integer inputs, which the model's look-ups bound
    dynamic: Dynamic | None = None  # of a range of shapes; those above are the largest then
    version: Version = Version.ALONE

    def file(self, name: str) -> Path:
        """Where a file of the version's records lies."""
        return self.directory / self.version.file(name)

    def records(self, scratch: Path) -> Path:
        """A directory with the version's records, under the names that TVM looks for."""
        if self.version is Version.ALONE:
            return self.directory.absolute()
        folder = scratch / self.version
        folder.mkdir()
        for name in DATABASE:
            shutil.copyfile(self.file(name), folder / name)
        return folder


def read_exported(directory: Path, target: str | None, version: Version = Version.ALONE) -> Exported:
    """Read a directory's manifest; one written by stock TVM has none, and its target must be given.

    Raises NotFound for a missing directory, InvalidRequest for another target, a manifest that is none, or a
    version that is not there.
    """
    exported = replace(_read(directory, target), version=version)
    if version is not Version.ALONE and not all(exported.file(name).is_file() for name in DATABASE):
        raise InvalidRequest(
            f"{directory} has no version {version}: the job had no --contention, or no other schedules were "
            "faster beside other programs",
            hint="leave --version out, or   mallorn tune MODEL --contention --out OTHER_DIR",
        )
    return exported


def _read(directory: Path, target: str | None) -> Exported:
    if not directory.is_dir():
        raise NotFound(f"there is no directory {str(directory)!r}", hint="mallorn tune MODEL --out DIR")
    manifest = directory / MANIFEST
    if not manifest.is_file():
        return _stock(directory, target)
    found = read_manifest(manifest)
    exported = Exported(
        directory=directory,
        target=parse_target(found.target),
        recipe=found.recipe,
        input_shapes=found.input_shapes,
        input_ranges=found.input_ranges,
        dynamic=found.dynamic,
    )
    _check_target(exported, target)
    return exported


def _check_target(exported: Exported, target: str | None) -> None:
    wanted = exported.target if target is None else _parsed(target)
    if wanted != exported.target:
        raise InvalidRequest(
            f"the schedules in {exported.directory} are for target {exported.target}, not for {wanted}",
            hint="leave --target out, or   mallorn tune MODEL --target TARGET --out OTHER_DIR",
        )


def _stock(directory: Path, target: str | None) -> Exported:
    from workers.tvm.recipes import PLAIN, recipe_for, stored_recipe

    if target is None:
        message = f"{directory} has no {MANIFEST}, so the target is unknown"
        raise InvalidRequest(message, hint="add --target local, or the target as JSON")
    parsed = _parsed(target)
    return Exported(directory, parsed, stored_recipe(recipe_for(PLAIN.name, parsed)), {}, {})


def _parsed(target: str) -> Target:
    from workers.device.detect import detect_target

    return detect_target() if target == LOCAL else parse_target(target)
