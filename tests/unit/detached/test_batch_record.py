"""What a results file may say: it comes from a machine of strangers."""

import json
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.workers.detached.batch_record import (
    MOST_BYTES,
    SentBatch,
    SentCall,
    check_call_keys,
    load_batch,
    read_results,
    store_batch,
)
from mallorn.workers.detached.run_batch import FORMAT

DEVICE = {
    "name": "node7",
    "host_id": "a" * 16,
    "host_class": "epyc-8c",
    "threads": 8,
    "tvm_version": "0.27",
    "is_local": True,
}
HEADER = {"format": FORMAT, "batch": "0123456789abcdef", "digest": "d", "device": DEVICE}
TIMED = {"key": "1-0", "outcome": "ok", "run_us": [2.5, 3.5], "run_ms": 20.0}
QUIET = {
    "candidates": 1,
    "upper_bounds": 0,
    "valid_sec": 0.1,
    "repeated_sec": 0.0,
    "other_programs": 0.5,
    "cores": 8,
    "has_priority": True,
    "gpu": "",
}
BATCH = SentBatch(
    id="0123456789abcdef",
    job_id="j",
    digest="d",
    keys=("1-0", "f0-0-check"),
    checks=(SentCall(key="f0-0-check", workload="w", candidate="c"),),
)


def written(tmp_path: Path, *lines: dict[str, Any]) -> Path:
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_results_are_read_up_to_a_line_that_was_cut_off(tmp_path: Path) -> None:
    file = written(tmp_path, HEADER, {"start": "1-0"}, TIMED)
    with file.open("a") as end:
        end.write('{"key": "1-1", "outc')
    told = read_results(file)
    assert [*told.calls] == ["1-0"]
    assert told.calls["1-0"].disturbance is None, "nothing is known"
    assert told.calls["1-0"].run_us == (2.5, 3.5)


def test_what_disturbed_a_timing_comes_home_with_it(tmp_path: Path) -> None:
    told = TIMED | {"disturbed": 0.4, "disturbance": QUIET | {"upper_bounds": 1, "repeated_sec": 2.5}}
    call = read_results(written(tmp_path, HEADER, told)).calls["1-0"]
    assert call.disturbed == 0.4
    assert call.disturbance is not None
    assert (call.disturbance.upper_bounds, call.disturbance.cores) == (1, 8)
    assert call.disturbance.repeated_sec == 2.5


def test_a_file_says_nothing_of_a_device_that_registered(tmp_path: Path) -> None:
    device = read_results(written(tmp_path, HEADER)).device
    assert device.name == "batch:node7"
    assert device.info.stopped, "nobody reaches it"
    assert not device.info.is_local


def test_of_two_results_of_one_call_the_first_counts(tmp_path: Path) -> None:
    told = read_results(written(tmp_path, HEADER, TIMED, TIMED | {"run_us": [0.1]}))
    assert told.calls["1-0"].run_us == (2.5, 3.5)


@pytest.mark.parametrize(
    "line",
    [
        TIMED | {"run_us": [0.0]},
        TIMED | {"run_us": [-1.0]},
        TIMED | {"run_us": [float("nan")]},
        TIMED | {"run_us": [float("inf")]},
        TIMED | {"run_us": [1.0] * 1001},
        TIMED | {"run_us": "2.5"},
        TIMED | {"outcome": "withdrawn"},
        TIMED | {"run_ms": -1},
        TIMED | {"key": "k" * 65},
        TIMED | {"disturbed": 1.5},
        TIMED | {"disturbed": float("nan")},
        TIMED | {"disturbance": QUIET | {"other_programs": float("inf")}},
        TIMED | {"disturbance": QUIET | {"repeated_sec": -1.0}},
        TIMED | {"disturbance": QUIET | {"candidates": 9}},
        TIMED | {"disturbance": QUIET | {"gpu": "w" * 1001}},
        TIMED | {"error": "e" * 4001},
        HEADER | {"device": {}},
        HEADER | {"device": DEVICE | {"host_id": "simulated"}},
        HEADER | {"device": DEVICE | {"threads": 0}},
        HEADER | {"batch": "../../models/x"},
        HEADER | {"batch": "fedcba9876543210"},
        HEADER | {"device": DEVICE | {"host_class": "another"}},
    ],
)
def test_what_no_run_can_have_said_is_refused(tmp_path: Path, line: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        check_call_keys(BATCH, read_results(written(tmp_path, HEADER, line)))


@pytest.mark.parametrize("text", ["", "[]\n", "null\n", "7\n", "[" * 100_000 + "\n", '"key"\n', "\0\n"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(InvalidRequest, match="not hold results of a batch"):
        read_results(tmp_path / "file")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(InvalidRequest, match="larger than"):
        read_results(tmp_path / "file")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (HEADER | {"digest": "another"}, "changed after `mallorn batch next`"),
        (TIMED | {"key": "9-9"}, "no candidate 9-9"),
        ({"key": "1-0", "outcome": "ok"}, "must have run times"),
        ({"key": "1-0", "outcome": "run_error", "run_us": [1.0]}, "must have run times"),
        (TIMED | {"key": "f0-0-check"}, "must have run times"),
    ],
)
def test_results_must_be_of_what_was_sent(tmp_path: Path, line: dict[str, Any], words: str) -> None:
    file = written(tmp_path, *([line] if "device" in line else [HEADER, line]))
    with pytest.raises(InvalidRequest, match=words):
        check_call_keys(BATCH, read_results(file))


def test_a_batch_is_kept_until_it_is_asked_for(tmp_path: Path) -> None:
    store_batch(str(tmp_path), BATCH)
    assert load_batch(str(tmp_path), BATCH.id) == BATCH


@pytest.mark.parametrize("name", ["fedcba9876543210", "../../etc/passwd", "", "0123456789ABCDEF/x"])
def test_a_batch_that_was_never_made_is_not_known(tmp_path: Path, name: str) -> None:
    store_batch(str(tmp_path), BATCH)
    with pytest.raises(InvalidRequest, match="did not make the batch"):
        load_batch(str(tmp_path), name)
