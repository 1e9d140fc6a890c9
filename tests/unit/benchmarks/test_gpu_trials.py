"""Files of trials: what was measured is read back, and becomes a recording, whoever wrote it and where."""

import tarfile
from pathlib import Path

import pytest

from benchmarks.gpu.part3 import ARCHIVE, pack, take_earlier
from benchmarks.gpu.search_places import FOLDER
from benchmarks.gpu.trials import MeasuredCandidate, TrialFile, read_device, read_trials
from mallorn.core.outcomes import Outcome
from mallorn.core.values.candidate import Candidate, Choice, ChoiceKind, Sketch
from mallorn.core.values.trial import Trial

TARGET = '{"arch":"sm_90a","kind":"cuda"}'


def measured(task: str = "softmax", number: int = 0, extent: int = 64) -> MeasuredCandidate:
    """Return a trial whose sketch has the same key in every task, and the task's own extent."""
    sketch = Sketch("key", "[]", (Choice(ChoiceKind.TILE, 2, extent=extent),))
    candidate = Candidate("key", (number + 1, extent))
    trial = Trial(
        candidate, Outcome.OK, run_us=(3.0, 1.5, 2.0), build_ms=7.0, origin="ga:mutation", predicted=0.5
    )
    kernels = [{"name": "main_kernel", "registers": 32}]
    return MeasuredCandidate(task, TARGET, "ours", 0, number, sketch, trial, list(kernels), 1.5, 0.25, "a.so")


def test_a_trial_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = TrialFile(tmp_path / "trials.jsonl")
    file.append_device({"host_class": "gpu"})
    failed = MeasuredCandidate(
        "softmax",
        TARGET,
        "chance",
        1,
        0,
        measured().sketch,
        Trial(Candidate("key", (5, 5)), Outcome.BUILD_ERROR, error="nvcc refused"),
    )
    for each in (measured(), measured(number=1), failed):
        file.append(each)
    assert list(read_trials([tmp_path / "trials.jsonl"])) == [measured(), measured(number=1), failed]
    assert read_device(tmp_path / "trials.jsonl") == {"host_class": "gpu"}
    assert TrialFile(tmp_path / "trials.jsonl").of("ours", 0) == [measured(), measured(number=1)]


def test_a_sketch_of_two_tasks_has_the_extents_of_each(tmp_path: Path) -> None:
    file = TrialFile(tmp_path / "trials.jsonl")
    file.append(measured("softmax", extent=64))
    file.append(measured("norm", extent=128))
    extents = {each.task: each.sketch.choices[0].extent for each in read_trials([tmp_path / "trials.jsonl"])}
    assert extents == {"softmax": 64, "norm": 128}


def test_an_incomplete_line_is_dropped_and_the_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    TrialFile(path).append(measured())
    with path.open("a") as lines:
        lines.write('{"kind": "trial", "task"')
    TrialFile(path).append(measured(number=1))
    assert list(read_trials([path])) == [measured(), measured(number=1)]


def test_what_came_back_is_gone_on_with_on_another_machine_and_never_replaces_what_is_there(
    tmp_path: Path,
) -> None:
    first, second, out = tmp_path / "first", tmp_path / "second", tmp_path / "out"
    out.mkdir()
    TrialFile(first / FOLDER / "softmax" / "trials.jsonl").append(measured())
    pack(first, out)
    second.mkdir()
    take_earlier(out / ARCHIVE, second)
    file = TrialFile(second / FOLDER / "softmax" / "trials.jsonl")
    assert file.trials == [measured()]
    file.append(measured(number=1))
    take_earlier(out / ARCHIVE, second)
    assert len(TrialFile(second / FOLDER / "softmax" / "trials.jsonl").trials) == 2


def test_an_archive_that_is_damaged_is_refused(tmp_path: Path) -> None:
    (tmp_path / ARCHIVE).write_bytes(b"nothing")
    with pytest.raises(tarfile.ReadError):
        take_earlier(tmp_path / ARCHIVE, tmp_path)
