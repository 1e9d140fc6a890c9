"""torch.compile with Mallorn: what a library runs, and what stays eager and says so."""

import os
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from mallorn.client import torch_backend, torch_module
from mallorn.client.job import Job
from mallorn.client.torch_backend import EagerFallback, compile_graph, is_kept
from mallorn.client.torch_module import TunedModule

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


class Session:
    """Runs a module instead of a library."""

    def __init__(self, module: Callable[..., Any], *names: str) -> None:
        self._module = module
        self.inputs = [SimpleNamespace(name=name) for name in names]

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        results = self._module(*(inputs[info.name] for info in self.inputs))
        return {str(index): value.numpy() for index, value in enumerate(results)}


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """The options of each compilation; libraries are the frozen graphs themselves."""
    made: list[Any] = []
    graphs: dict[Path, Any] = {}

    def build(frozen: Any, inputs: Any, file: Path, options: Any) -> None:
        made.append(dict(options))
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"")
        module = torch.export.export(frozen, inputs).module()
        graphs[file] = Session(module, *map(str, range(len(inputs))))

    monkeypatch.setattr(torch_backend, "build_library", build)
    monkeypatch.setattr(torch_module, "Session", graphs.__getitem__)
    monkeypatch.setattr(torch_backend, "_reasons", set())
    monkeypatch.setattr(torch_backend, "settings", lambda: SimpleNamespace(data_dir=tmp_path, url=None))
    torch.compiler.reset()
    yield made
    torch.compiler.reset()


def compiled(model: Callable[..., Any], **options: Any) -> Any:
    return torch.compile(model, backend=compile_graph, options=options)


def test_a_graph_is_compiled_once_and_right_again_after_its_weights_changed(builds: list[Any]) -> None:
    net = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    x, call = torch.randn(2, 8), compiled(net, trials=5)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(call(x), net(x))
        assert builds == [{"trials": 5}]
        net[0].weight.mul_(2)
        torch.testing.assert_close(call(x), net(x))
    assert builds == [{"trials": 5}] * 2


def test_another_call_finds_the_library_that_was_kept(builds: list[Any]) -> None:
    net, x = nn.Linear(8, 4).eval(), torch.randn(2, 8)
    with torch.no_grad():
        for _ in range(2):
            torch.compiler.reset()
            compiled(net)(x)
    assert builds == [{}]


def test_a_library_of_another_user_or_behind_a_link_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (library := tmp_path / "kept.so").write_bytes(b"code")
    assert is_kept(library)
    assert not is_kept(tmp_path / "absent.so")
    assert not is_kept(tmp_path / "absent" / "kept.so")
    (link := tmp_path / "link.so").symlink_to(library)
    assert not is_kept(link)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert not is_kept(library)


def test_free_dimensions_get_a_library_a_size(builds: list[Any]) -> None:
    net = nn.Linear(8, 4).eval()
    call = compiled(net)
    with torch.no_grad():
        for length in (2, 3, 5, 3):
            x = torch.randn(length, 8)
            torch.testing.assert_close(call(x), net(x))
    assert len(builds) == 3


def change_input(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def view(x: torch.Tensor) -> torch.Tensor:
    return x.view(2, 4)


@pytest.mark.parametrize(
    ("function", "reason"), [(change_input, "writes to its inputs"), (view, "a view of an input")]
)
def test_what_a_library_cannot_do_stays_eager(
    builds: list[Any], function: Callable[..., Any], reason: str
) -> None:
    x, same = torch.zeros(8), torch.zeros(8)
    with pytest.warns(EagerFallback, match=reason):
        result = compiled(function)(x)
    assert torch.equal(result, function(same))
    assert torch.equal(x, same)
    assert builds == []


def test_gradients_stay_eager_and_are_told_once(builds: list[Any]) -> None:
    net, x = nn.Linear(8, 4), torch.randn(2, 8)
    with pytest.warns(EagerFallback, match="gradients are wanted"):
        compiled(net)(x).sum().backward()
    torch.compiler.reset()
    compiled(net)(x)  # a second warning would fail this test
    assert net.weight.grad is not None
    assert builds == []


def test_a_wrong_library_is_not_used(builds: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = nn.Linear(8, 4).eval(), torch.randn(2, 8)
    monkeypatch.setattr(TunedModule, "run", lambda self, *args: (torch.ones(2, 4) * 9,))
    with torch.no_grad(), pytest.warns(EagerFallback, match="the library is wrong"):
        torch.testing.assert_close(compiled(net)(x), net(x))


def test_torch_finds_the_backend_by_name() -> None:
    [entry] = entry_points(group="torch_dynamo_backends", name="mallorn")
    assert entry.load() is compile_graph


def test_a_tuned_module_takes_inputs_by_position_and_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Difference(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor]:
            return (a - b,)

    a, b = torch.ones(2), torch.zeros(2)
    monkeypatch.setattr(torch_module, "Session", lambda _: Session(Difference(), "a", "b"))
    module = TunedModule(Path("model.so"))
    for result in (module(a, b), module(a, b=b), module(b=b, a=a)):
        assert torch.equal(result, a - b)
    for args, kwargs in (((a,), {}), ((a, b, b), {}), ((a, b), {"b": b})):
        with pytest.raises(TypeError, match="the model takes"):
            module(*args, **kwargs)


def test_the_module_of_a_job_calls_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(library: Path) -> Session:
        assert library.read_bytes() == b"library"
        return Session(lambda a: (a * 2, a + 1), "a")

    def library(self: Job, path: Path) -> Path:
        path.write_bytes(b"library")
        return path

    monkeypatch.setattr(torch_module, "Session", session)
    monkeypatch.setattr(Job, "library", library)
    doubled, more = Job.module(Job.__new__(Job))(torch.ones(3))
    assert torch.equal(doubled, more)
