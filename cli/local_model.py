"""A model and the schedules of a directory on this machine, without a service."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from cli.exported import Exported
from cli.parts import installed
from mallorn.exporting import as_onnx
from stack.environ import search_path

if TYPE_CHECKING:
    from workers.racing.whole_model import WholeModel


@contextmanager
def local_model(model: Path, exported: Exported, threads: int | None = None) -> "Iterator[WholeModel]":
    """The model as it was tuned; its processes and files are gone afterwards.

    Engines run on as many threads as the target has cores unless told otherwise.
    """
    with installed("worker"):
        for library in ("onnx", "tvm"):  # imported by its processes alone
            if find_spec(library) is None:
                raise ModuleNotFoundError(name=library)
        from workers.faces.graphs import Graphs
        from workers.racing.whole_model import WholeModel
    count, path = threads or exported.target.num_cores, {"PATH": search_path()}
    with (
        as_onnx(model) as file,
        TemporaryDirectory(prefix="mallorn-") as folder,
        Graphs(env={"TVM_NUM_THREADS": str(count), **path}) as graphs,
    ):
        yield WholeModel(
            path=file.absolute(),
            target=exported.target,
            recipe=exported.recipe,
            input_shapes=exported.input_shapes,
            input_ranges=exported.input_ranges,
            dynamic=exported.dynamic,
            graphs=graphs,
            folder=Path(folder),
            threads=count,
            env=path,
        )


def onnxruntime_runs(exported: Exported) -> bool:
    """Whether onnxruntime is here, and a match for the target."""
    return exported.target.is_cpu and find_spec("onnxruntime") is not None
