"""The graph child: imports models, compiles them with schedules, writes and reads schedule directories."""

from typing import Final

from workers.children.method import serving
from workers.children.serve import serve
from workers.faces.graphs import Graphs, Shapes, Signature
from workers.tvm.accuracy import compare, compare_models
from workers.tvm.compile import compile_default, compile_model, compile_range
from workers.tvm.database import write_database
from workers.tvm.inputs import make_inputs
from workers.tvm.model import load_network
from workers.tvm.programs import parse_tvm_target
from workers.tvm.ranged import extract_range
from workers.tvm.reference import build_whole, reference
from workers.tvm.restoring import read_export, read_log
from workers.tvm.scripts import scripts
from workers.tvm.tasks import extract


def warm_up(target: str) -> None:
    """Load all that models for this target need."""
    parse_tvm_target(target)


def look(model_path: str, input_shapes: Shapes) -> Signature:
    """What a model takes, gives and consists of. Raises InvalidModel where TVM cannot read it."""
    network = load_network(model_path, input_shapes)
    return Signature(network.inputs, network.outputs, network.operators)


ANSWERS: Final = (
    Graphs.warm_up.by(warm_up),
    Graphs.look.by(look),
    Graphs.extract.by(extract),
    Graphs.compile_model.by(compile_model),
    Graphs.extract_range.by(extract_range),
    Graphs.compile_range.by(compile_range),
    Graphs.compile_default.by(compile_default),
    Graphs.make_inputs.by(make_inputs),
    Graphs.compare_models.by(compare_models),
    Graphs.write_database.by(write_database),
    Graphs.read_export.by(read_export),
    Graphs.read_log.by(read_log),
    Graphs.scripts.by(scripts),
    Graphs.build_whole.by(build_whole),
    Graphs.reference.by(reference),
    Graphs.compare.by(compare),
)

if __name__ == "__main__":
    serve(serving(Graphs, *ANSWERS))
