"""Whatever a stranger sends is read or refused in one sentence; nothing crashes, hangs or takes memory."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzzing.readers import FIRST_MODELS, READERS
from benchmarks.fuzzing.trying import READ, REFUSED
from mallorn.core.errors import InvalidModel, MallornError
from mallorn.core.registry import list_names, resolve
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.process.unpack_model import unpack
from mallorn.workers.tvm.network.graph_recipes import TUNED
from tests.fixtures.command_line import TIMEOUT_SEC, clean_environment
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.hostile import models
from tests.fixtures.hostile.corpus import Hostile, corpus

MEMORY_MB = 4096  # of address space
GROWTH_MB = 1024  # of what is resident
LIMIT_SEC = 120.0
NEED_TORCH = {"tlp", "mtl-tlp", "gnn", "tree-lstm", "pacm"}
TARGET = '{"kind":"llvm","mcpu":"haswell","num-cores":2}'


def read_all(reader: str, folder: Path) -> Iterator[tuple[Hostile, dict[str, Any]]]:
    """How each input of a reader ends, all of them in one process."""
    cases = [case for case in corpus() if case.reader == reader]
    for number, case in enumerate(cases):
        (folder / f"{number:04}").write_bytes(case.data)
    words = ["-m", "benchmarks.fuzzing.trying", reader, str(folder), "--memory-mb", str(MEMORY_MB)]
    ran = subprocess.run(
        [sys.executable, *words],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SEC,
    )
    ends = {line["file"]: line for line in map(json.loads, ran.stdout.splitlines())}
    assert ran.returncode == 0, (list(ends.values())[-1:], ran.stderr[-2000:])
    return ((case, ends[f"{number:04}"]) for number, case in enumerate(cases))


def is_sentence(text: str) -> bool:
    return bool(text) and text.isprintable() and len(text) < 1000


def test_there_are_two_hundred_of_them_and_every_reader_has_some() -> None:
    assert len({(case.reader, case.name) for case in corpus()}) == len(corpus()) > 200
    assert {case.reader for case in corpus()} == READERS.keys()


def test_every_way_in_which_a_stored_cost_model_is_read_has_a_reader() -> None:
    def load(name: str) -> object:
        return resolve("cost_model", name).load.__func__

    read = {load(name) for name in FIRST_MODELS}
    left = {name for name in list_names("cost_model") if load(name) not in read}
    assert left - NEED_TORCH == {"random"}, "which stores nothing"


@pytest.mark.parametrize("reader", READERS)
def test_what_a_stranger_wrote_is_read_or_refused_in_one_sentence(reader: str, tmp_path: Path) -> None:
    ends = list(read_all(reader, tmp_path))
    assert [(case.name, end) for case, end in ends if not is_good(case, end)] == []
    assert ends[-1][1]["peak_mb"] - ends[0][1]["peak_mb"] < GROWTH_MB


def is_good(case: Hostile, end: dict[str, Any]) -> bool:
    """Whether it was refused in a sentence with a next step, or read, with a sentence for what is wrong."""
    if end["ended"] == REFUSED:
        return is_sentence(end["said"]) and bool(end["hint"])
    return end["ended"] == READ and (not case.wrong or is_sentence(end["said"]))


@pytest.fixture(scope="module")
def graphs() -> Iterator[ModelCompiler]:
    with ModelCompiler(memory_bytes=8 << 30) as child:
        yield child


@pytest.mark.parametrize("make", [models.claims, models.bombs, models.torn], ids=lambda make: make.__name__)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_hostile_model_passes_the_coordinator_and_ends_in_the_child(
    make: Callable[[], Iterator[tuple[str, bytes]]],
    coordinator: Coordinator,
    graphs: ModelCompiler,
    tmp_path: Path,
) -> None:
    bad = []
    for number, (name, data) in enumerate(make()):
        answer = coordinator.http.put("/models", params={"name": "hostile"}, content=data)
        assert answer.status_code in (200, 422), (name, answer.text)
        if answer.status_code == 200:
            folder = tmp_path / str(number)
            folder.mkdir()
            (stored,) = coordinator.artifacts.rglob(f"*{answer.json()['id']}*")
            error = refusal(stored, graphs, folder)
            if error and not (type(error) is InvalidModel and is_sentence(error.message) and error.hint):
                bad.append((name, repr(error)))
    assert bad == []
    assert coordinator.http.get("/readyz").status_code == 200


def refusal(stored: Path, graphs: ModelCompiler, folder: Path) -> MallornError | None:
    """What a worker's import says of an uploaded model; None: it is one."""
    try:
        with stored.open("rb") as file:
            model = unpack(file, folder)
        graphs.extract.call_with_limit(LIMIT_SEC, str(model), TARGET, TUNED, {})
    except MallornError as error:
        return error
    return None
