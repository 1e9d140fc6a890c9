"""The graph child: imports models, compiles them with schedules, writes and reads schedule directories."""

from collections.abc import Callable
from typing import Any, Final

from mallorn.core.targets import parse_target
from workers.children.serve import plain, serve
from workers.tvm.accuracy import compare, compare_models
from workers.tvm.compile import compile_default, compile_model
from workers.tvm.database import write_database
from workers.tvm.inputs import make_inputs
from workers.tvm.logs import check_database
from workers.tvm.model import Shapes, load_network
from workers.tvm.passes import TargetLike
from workers.tvm.recipes import recipe_for, recipe_json
from workers.tvm.reference import build_whole, reference
from workers.tvm.restoring import read_export
from workers.tvm.scripts import scripts
from workers.tvm.tasks import extract


def recipe(name: str, target: TargetLike) -> dict[str, Any]:
    """The recipe registered under a name, as it suits the target, as a value to store with a job."""
    return recipe_json(recipe_for(name, parse_target(target)))


def look(model_path: str, input_shapes: Shapes | None = None) -> dict[str, Any]:
    """What a model takes, gives and consists of. Raises InvalidModel where TVM cannot read it."""
    network = load_network(model_path, input_shapes)
    return {"inputs": network.inputs, "outputs": network.outputs, "operators": network.operators}


METHODS: Final[dict[str, Callable[..., Any]]] = {
    "recipe": recipe,
    "look": look,
    "extract": extract,
    "compile_model": compile_model,
    "compile_default": compile_default,
    "write_database": write_database,
    "scripts": scripts,
    "check_database": check_database,
    "read_export": read_export,
    "build_whole": build_whole,
    "reference": reference,
    "compare": compare,
    "make_inputs": make_inputs,
    "compare_models": compare_models,
}

if __name__ == "__main__":
    serve(plain(METHODS))
