"""Models of other frameworks on their way to ONNX; stand-ins of the exporters show what they are asked."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from mallorn import Client
from mallorn.client.onnx_export import as_onnx, to_onnx
from mallorn.core.errors import InvalidModel
from mallorn.core.installation import MissingPackage, pip_install_command
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.models import onnx_bytes

TARGET = {"kind": "llvm", "num-cores": 2}
Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts stand-ins of packages in place; those that are not named are not installed."""
    for name in ("torch", "onnxscript", "tensorflow", "tf2onnx", "tf2onnx.convert", "keras"):
        monkeypatch.setitem(sys.modules, name, None)

    def put(**packages: Any) -> None:
        for name, content in packages.items():
            module = ModuleType(name)
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, name.replace("__", "."), module)

    return put


class Module:
    """What `torch.nn.Module` is to an exporter."""

    def __init__(self, numbers: int = 10) -> None:
        self.training = True
        self._tensors = [SimpleNamespace(numel=lambda: numbers, element_size=lambda: 4)]

    def parameters(self) -> list[Any]:
        return self._tensors

    def buffers(self) -> list[Any]:
        return []

    def eval(self) -> None:
        self.training = False

    def train(self, mode: bool) -> None:
        self.training = mode


class MyNet(Module):
    pass


def torch(export: Callable[..., None]) -> dict[str, Any]:
    return {"nn": SimpleNamespace(Module=Module), "onnx": SimpleNamespace(export=export)}


def test_a_torch_module_is_exported_in_evaluation_and_left_as_it_was(install: Install) -> None:
    seen: list[Any] = []

    def export(module: Module, args: Any, file: str, **options: Any) -> None:
        seen.append((module.training, args, options["kwargs"], options["external_data"]))
        Path(file).write_bytes(b"onnx")

    install(torch=torch(export), onnxscript={})
    net = MyNet()
    for example_inputs in ("x", ("x", "y"), {"x": 1}):
        with as_onnx(net, example_inputs) as file:
            assert (file.name, file.read_bytes()) == ("MyNet.onnx", b"onnx")
        assert not file.exists()
    assert seen == [
        (False, ("x",), {}, False),
        (False, ("x", "y"), {}, False),
        (False, (), {"x": 1}, False),
    ]
    assert net.training


def test_an_export_that_fails_leaves_the_module_as_it_was(install: Install) -> None:
    install(torch=torch(Mock(side_effect=RuntimeError("no operator Foo"))), onnxscript={})
    net = MyNet()
    with pytest.raises(RuntimeError, match="no operator Foo"), as_onnx(net, "x"):
        pass
    assert net.training


def test_a_torch_module_without_example_inputs_is_refused(install: Install) -> None:
    install(torch=torch(print))
    with pytest.raises(InvalidModel, match="example inputs") as caught, as_onnx(MyNet()):
        pass
    assert caught.value.hint == "client.submit(net, example_inputs=(x,))"


def test_a_keras_file_is_loaded_and_exported(install: Install, tmp_path: Path) -> None:
    model = tmp_path / "net.keras"
    model.write_bytes(b"keras")

    def load_model(path: Path, compile: bool, safe_mode: bool) -> Any:
        assert safe_mode
        content = path.read_bytes()
        return SimpleNamespace(export=lambda file, format, verbose: file.write_bytes(content + b">onnx"))

    install(keras={"saving": SimpleNamespace(load_model=load_model), "__version__": "3.15.1"}, tf2onnx={})
    with as_onnx(model) as file:
        assert (file.name, file.read_bytes()) == ("net.onnx", b"keras>onnx")


@pytest.mark.parametrize("version", ["3.8.0", "3.14.1", "2.15.0"])
def test_a_version_of_keras_that_runs_code_of_files_is_refused(
    install: Install, tmp_path: Path, version: str
) -> None:
    (model := tmp_path / "net.keras").write_bytes(b"keras")
    install(keras={"__version__": version}, tf2onnx={})
    with pytest.raises(InvalidModel, match=f"Keras {version}") as caught, as_onnx(model):
        pass
    assert caught.value.hint == pip_install_command("tensorflow")


def test_an_hdf5_file_is_refused_before_keras_reads_it(install: Install, tmp_path: Path) -> None:
    (model := tmp_path / "net.h5").write_bytes(b"code")
    install(keras={"__version__": "3.15.1"}, tf2onnx={})
    with pytest.raises(InvalidModel, match="may hold code") as caught, as_onnx(model):
        pass
    assert "if you trust its author" in caught.value.hint


def test_a_tflite_file_is_converted(install: Install, tmp_path: Path) -> None:
    model = tmp_path / "net.tflite"
    model.write_bytes(b"tflite")

    def from_tflite(path: str, output_path: str) -> None:
        Path(output_path).write_bytes(Path(path).read_bytes() + b">onnx")

    install(tensorflow={}, tf2onnx={}, tf2onnx__convert={"from_tflite": from_tflite})
    with as_onnx(str(model)) as file:
        assert (file.name, file.read_bytes()) == ("net.onnx", b"tflite>onnx")


@pytest.mark.parametrize(("name", "missing"), [("a.tflite", "tensorflow"), ("a.keras", "keras")])
def test_without_the_converter_the_next_step_is_said(
    install: Install, tmp_path: Path, name: str, missing: str
) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(MissingPackage, match=missing) as caught, as_onnx(tmp_path / name):
        pass
    assert caught.value.hint == pip_install_command("tensorflow")


def test_what_no_converter_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"nor a \.tflite, \.keras, \.h5") as caught:
        to_onnx(tmp_path / "model.pt", tmp_path / "model.onnx")
    assert caught.value.hint == "an ONNX file needs no conversion"


def test_an_onnx_file_is_taken_as_it_is(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(onnx_bytes())
    with as_onnx(str(model)) as file:
        assert file == model
    assert model.exists()


def test_dimensions_stay_free_as_torch_is_told(install: Install) -> None:
    seen: list[Any] = []

    def export(module: Module, args: Any, file: str, **options: Any) -> None:
        seen.append(options["dynamic_shapes"])
        Path(file).write_bytes(b"onnx")

    install(torch=torch(export), onnxscript={})
    shapes = ({0: "batch"},)
    with as_onnx(MyNet(), "x", shapes), as_onnx(MyNet(), "x"):
        assert seen == [shapes, None]


@pytest.mark.parametrize(("gigabytes", "beside"), [(0.5, False), (3, True)])
def test_weights_that_no_onnx_file_holds_lie_beside_it(
    install: Install, gigabytes: float, beside: bool
) -> None:
    seen: list[bool] = []

    def export(module: Module, args: Any, file: str, **options: Any) -> None:
        seen.append(options["external_data"])
        Path(file).write_bytes(b"onnx")

    install(torch=torch(export), onnxscript={})
    with as_onnx(MyNet(int(gigabytes * (1 << 28))), "x"):
        assert seen == [beside]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_tune_takes_a_module(install: Install, coordinator: Coordinator) -> None:
    def export(module: Module, args: Any, file: str, **options: Any) -> None:
        Path(file).write_bytes(onnx_bytes())

    install(torch=torch(export), onnxscript={})
    with Client(coordinator.url) as client:
        job = client.submit(MyNet(), TARGET, trials=3, example_inputs=("x",))
        (model,) = client.models()
    assert (model.name, model.id) == ("MyNet.onnx", job.status.model_id)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_file_that_is_not_there_is_named_whatever_its_kind(coordinator: Coordinator) -> None:
    with (
        Client(coordinator.url) as client,
        pytest.raises(InvalidModel, match=r"there is no file 'a\.tflite'"),
    ):
        client.upload("a.tflite")
