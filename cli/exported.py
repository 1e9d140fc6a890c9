"""A directory of schedules as the local commands read it: its manifest, and the target asked for."""

from dataclasses import dataclass
from pathlib import Path

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.targets import LOCAL, Target, parse_target
from mallorn.core.values.dynamic import Dynamic
from mallorn.core.values.graph import StoredRecipe
from mallorn.core.values.manifest import MANIFEST, read_manifest


@dataclass(frozen=True)
class Exported:
    """What a directory's schedules were tuned for and after which graph passes."""

    directory: Path
    target: Target
    recipe: StoredRecipe
    input_shapes: dict[str, list[int]]
    input_ranges: dict[str, list[int]]  # of integer inputs, which the model's look-ups bound
    dynamic: Dynamic | None = None  # of a range of shapes; those above are the largest then


def read_exported(directory: Path, target: str | None) -> Exported:
    """Read a directory's manifest; one written by stock TVM has none, and its target must be given.

    Raises NotFound for a missing directory, InvalidRequest for another target or a manifest that is none.
    """
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
