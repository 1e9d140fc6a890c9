"""The speed of proposals: every searcher is asked, and the headline is told last."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import proposals
from mallorn.core.errors import NotFound
from mallorn.research.replay.recording_file import write_tasks
from tests.unit.research.replay.made_up import made_up


@pytest.fixture
def spaces(tmp_path: Path) -> Path:
    write_tasks(tmp_path / "s.parquet", [made_up(40), made_up(40, name="fused_conv2d", op="conv2d")], {})
    return tmp_path / "s.parquet"


def run(monkeypatch: pytest.MonkeyPatch, spaces: Path, *words: str) -> None:
    command = ["proposals", "--spaces", str(spaces), "--repeats", "1", "--count", "8", *words]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as the script does, but for this test alone
    proposals.main()


def test_seconds_are_told_by_searcher_and_length(
    monkeypatch: pytest.MonkeyPatch, spaces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = spaces.with_suffix(".json")
    words = ["--search", "random", "evolutionary", "--lengths", "80", "20", "--json", str(out)]
    run(monkeypatch, spaces, *words)
    raw = json.loads(out.read_text())
    assert raw["task"] == "fused_conv2d"
    assert list(raw["searchers"]) == ["random", "evolutionary"]
    for figures in raw["searchers"].values():
        assert list(figures) == ["20", "80"]
        assert all(seconds["wall_sec"] > 0 for seconds in figures.values())
    assert capsys.readouterr().out.splitlines()[-1] == raw["headline"]
    assert raw["headline"].split()[0] in raw["searchers"], "which of them was slower is the machine's to say"


def test_histories_are_distinct_candidates_of_which_some_failed(spaces: Path) -> None:
    task = proposals._task(spaces, "matmul")
    space, model = proposals.learned(task)
    history = proposals._history(space, model, 200, seed=0)
    assert len({trial.candidate for trial in history}) == 200
    assert 0 < sum(trial.time_us is None for trial in history) < 50
    assert all(trial.build_ms for trial in history)


def test_a_recording_without_the_operator_is_an_error(monkeypatch: pytest.MonkeyPatch, spaces: Path) -> None:
    with pytest.raises(NotFound, match="softmax"):
        run(monkeypatch, spaces, "--task", "softmax")


def test_growth_is_the_largest_and_short_times_have_none() -> None:
    def seconds(short: float, long: float) -> proposals.Figures:
        return {at: {"wall_sec": sec, "processor_sec": sec} for at, sec in ((200, short), (2000, long))}

    found = {"random": seconds(0.001, 0.008), "sa": seconds(0.2, 0.25), "portfolio": seconds(0.1, 0.1)}
    told = proposals._headline(found, 200, 2000)
    assert told == "portfolio 0.100 s, sa 0.200 s; after 2000 trials at most 1.25 times as long"
