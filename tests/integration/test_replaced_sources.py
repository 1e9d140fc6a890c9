"""A worker whose sources were replaced under it ends, and nothing is built with the new ones meanwhile."""

import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from mallorn.db.repositories.leases import WorkItem
from mallorn.workers.host import code_digest
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn.workers.process.leased_work import leased_work
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.shutdown import STOP, ShutdownRequested
from mallorn.workers.subprocesses.typed_method import Method
from tests.fixtures.workshop import Workshop

TARGET = '{"kind":"llvm"}'


@pytest.fixture
def asked_to_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The signals that this process, which stands for a worker, sent to itself."""
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    monkeypatch.setenv(code_digest.VARIABLE, "")
    code_digest.store_source_digest()
    yield signals
    signal.signal(signal.SIGTERM, before)
    STOP.requested.clear()


def replace_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks from now on finds other sources than this worker began with."""
    monkeypatch.setenv(code_digest.VARIABLE, "of before")


def test_children_of_the_same_sources_serve(asked_to_end: list[int], tmp_path: Path) -> None:
    with CandidateCompiler(room=tmp_path) as compiler:
        assert compiler.vector_lanes(TARGET) > 0
    assert asked_to_end == []


def test_a_child_of_other_sources_builds_nothing_and_its_worker_ends(
    asked_to_end: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replace_sources(monkeypatch)
    with CandidateCompiler(room=tmp_path) as compiler, pytest.raises(ShutdownRequested):
        compiler.vector_lanes(TARGET)
    assert asked_to_end == [signal.SIGTERM]
    assert "the code of this worker was replaced" in caplog.text


@pytest.mark.parametrize("face", [CandidateCompiler, Engine, ModelCompiler, Runner])
def test_every_child_that_loads_tvm_refuses(face: type[Child]) -> None:
    """By its module: what it serves goes through `same_code`."""
    spec = find_spec(face.MODULE)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert "serve(refuse_if_code_changed(" in source
    assert f"collect_handlers({face.__name__}, *ANSWERS" in source


def test_no_method_of_a_child_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    served = {name: bytes for name in dir(ModelCompiler) if isinstance(getattr(ModelCompiler, name), Method)}
    monkeypatch.setenv(code_digest.VARIABLE, "of before")
    refusing = code_digest.refuse_if_code_changed(served)
    assert refusing.keys() == served.keys()
    for refuse in refusing.values():
        with pytest.raises(code_digest.CodeReplaced):
            refuse(b"")


def test_a_worker_takes_no_work_once_its_sources_are_others(
    asked_to_end: list[int], workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = workshop.job(("w0",))
    item = WorkItem.for_round(workshop.next_round(job))
    replace_sources(monkeypatch)
    with leased_work(workshop, item) as held:
        assert held is None
    assert asked_to_end == [signal.SIGTERM]
    assert workshop.held(item).attempt == 0
