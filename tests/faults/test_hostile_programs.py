"""Programs, traces and directories that try to become code: none is built, and each gets a sentence."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import hostile_programs
from benchmarks.fuzzing import seeds
from mallorn.core.errors import InvalidRequest, Unschedulable
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.model_compiler import ModelCompiler, open_sandboxed_compiler
from tests.fixtures.hostile import accesses, programs

Directory = tuple[str, dict[str, bytes]]
SHARE = 3  # one in so many without `long`


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("strangers")


@pytest.fixture(scope="module")
def reader(place: Path) -> Iterator[ModelCompiler]:
    with open_sandboxed_compiler(place) as child:
        yield child


@pytest.fixture(scope="module")
def compiler(place: Path) -> Iterator[CandidateCompiler]:
    room = place / "room"
    room.mkdir()
    with CandidateCompiler(room=room) as child:
        yield child


def check_directories(cases: list[Directory], reader: ModelCompiler, place: Path) -> None:
    for number, (name, files) in enumerate(cases):
        folder = place / f"{number}-{len(cases)}"
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        found = reader.read_metaschedule_log(str(folder), 0, 10)
        assert found.records == [], name
        said = [problem.error for problem in found.problems]
        assert any("is refused: " in each and each.isprintable() for each in said), (name, said)


def test_no_line_of_a_strangers_directory_becomes_a_schedule(reader: ModelCompiler, place: Path) -> None:
    check_directories(list(programs.directories())[::SHARE], reader, place)


@pytest.mark.long
def test_no_line_of_any_directory_becomes_a_schedule(reader: ModelCompiler, place: Path) -> None:
    check_directories(list(programs.directories()), reader, place)


def check_builds(share: int, compiler: CandidateCompiler, place: Path) -> None:
    library, whole = place / "room" / "built.so", seeds.programs()[0].decode()
    for _, program in list(programs.programs())[::share]:
        with pytest.raises(Unschedulable, match="a stored program is refused: "):
            compiler.build(program.decode(errors="replace"), seeds.TARGET, "[]", [], str(library))
    for _, trace in list(programs.traces())[::share]:
        with pytest.raises(InvalidRequest, match="a trace is refused: "):
            compiler.build(whole, seeds.TARGET, trace.decode(), [], str(library))
        if len(trace) < 1 << 20:
            assert compiler.validate(whole, seeds.TARGET, [(trace.decode(), [])]) == [False]
    assert not library.exists()


def test_nothing_of_a_strangers_dataset_is_built(compiler: CandidateCompiler, place: Path) -> None:
    check_builds(4 * SHARE, compiler, place)


@pytest.mark.long
def test_nothing_of_any_dataset_is_built(compiler: CandidateCompiler, place: Path) -> None:
    check_builds(1, compiler, place)


def test_a_time_that_nobody_can_measure_is_a_failure(reader: ModelCompiler, place: Path) -> None:
    """A time below zero, or that is no number, would be the fastest for ever."""
    good, steps = seeds.programs()[0], json.loads(seeds.traces()[0])
    for number, seconds in enumerate((-1.0, 0.0, float("nan"), float("inf"))):
        folder = place / f"time{number}"
        folder.mkdir()
        for file, content in programs.directory(good, [steps, []], [0.001, seconds]).items():
            (folder / file).write_bytes(content)
        assert all(
            record.run_secs == [] for record in reader.read_metaschedule_log(str(folder), 0, 10).records
        )


def check_corpus(share: int) -> None:
    selected = {carrier: cases[::share] for carrier, cases in hostile_programs.cases().items()}
    endings = list(hostile_programs.run(selected))
    assert [ending for ending in endings if not ending.sentence.isprintable() or not ending.sentence] == []
    # Only models of ONNX operators run: their indices are clamped.
    assert [ending for ending in endings if ending.outcome == "runs" and ending.carrier != "onnx"] == []


def test_the_corpus_has_three_hundred_programs_of_many_kinds_on_four_ways() -> None:
    corpus = hostile_programs.cases()
    assert corpus.keys() == {"dataset", "directory", "trace", "onnx"}
    assert len({(carrier, name) for carrier, cases in corpus.items() for _, name, _ in cases}) >= 300
    assert len({kind for kind, _, _ in accesses.programs()}) >= 10


def test_what_leaves_its_buffers_is_refused_on_every_way() -> None:
    check_corpus(share=24)


@pytest.mark.long
def test_every_program_of_the_corpus_ends_in_a_sentence() -> None:
    check_corpus(share=1)
