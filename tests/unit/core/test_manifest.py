"""The exported scripts cannot import the manifest's schema, so what they read is held to it here."""

import ast
from pathlib import Path
from typing import Final

from mallorn.core.values.base import Value
from mallorn.core.values.graph_report import RecipeStep, StoredRecipe, TensorSpec
from mallorn.core.values.manifest import MANIFEST, Manifest
from mallorn.graphc.export import export_checks

# What the scripts call each part; an argument of a step may be a call, which has a name for the pass.
PARTS: Final[dict[str, type[Value]]] = {
    "manifest": Manifest,
    "manifest['recipe']": StoredRecipe,
    "spec": TensorSpec,
    "step": RecipeStep,
}
BESIDE: Final = {"step": {"call"}}


def _keys(part: str, *, sure: bool = False) -> set[str]:
    """The keys of a part that some script reads; only those without a default where `sure`."""
    found = set()
    for script in Path(export_checks.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(script.read_text())):
            match node:
                case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
                    found |= {key} if ast.unparse(value) == part else set()
                case ast.Call(
                    func=ast.Attribute(value=value, attr="get"), args=[ast.Constant(value=key), *_]
                ):
                    found |= {key} if ast.unparse(value) == part and not sure else set()
    return found


def test_the_scripts_read_nothing_that_the_schema_lacks() -> None:
    for part, schema in PARTS.items():
        fields = {field.alias or name for name, field in schema.model_fields.items()}
        assert _keys(part)
        assert _keys(part) - BESIDE.get(part, set()) <= fields, part


def test_the_scripts_have_all_they_need_of_the_least_manifest(tmp_path: Path) -> None:
    least = Manifest(target="llvm", recipe=StoredRecipe())
    (tmp_path / MANIFEST).write_text(least.model_dump_json(exclude_unset=True))
    assert _keys("manifest", sure=True) <= export_checks.read_manifest(tmp_path).keys()
    required = {name for name, field in Manifest.model_fields.items() if field.is_required()}
    assert set(export_checks.NEEDED) == required
