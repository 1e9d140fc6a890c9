"""What run_batch.py promises on a machine without Mallorn, tried with libraries that misbehave."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.outcomes import is_disturbed
from mallorn.core.targets import parse_target
from mallorn.workers.detached.batch_record import read_results
from mallorn.workers.detached.pack_batch import zip_program
from mallorn.workers.detached.run_batch import (
    FORMAT,
    MANIFEST,
    BatchRefused,
    DeviceProcess,
    ResultsFile,
    run_calls,
)
from mallorn.workers.sandbox.sandbox import WHOLE
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support
from tests.fixtures.batches import (
    HOST,
    begin,
    call,
    lines,
    outcomes,
    write_batch,
    write_expected,
    write_manifest,
)
from tests.fixtures.waiting import wait_for

LEVEL = probe_sandbox_support("best-effort")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "batch.results.jsonl"


def begun(results: Path, key: str, times: int) -> bool:
    return lines(results).count({"start": key}) >= times


def test_a_candidate_that_crashes_or_fails_costs_only_itself(tmp_path: Path, results: Path) -> None:
    names = {"a": "double", "b": "run_segfault", "c": "run_error", "d": "double"}
    batch = write_batch(tmp_path / "batch", [call(key, name) for key, name in names.items()])
    assert run_calls(batch, results) == 0
    assert outcomes(results) == {"a": "ok", "b": "run_error", "c": "run_error", "d": "ok"}
    told = {line["key"]: line for line in lines(results) if "key" in line}
    assert "SIGSEGV" in told["b"]["error"]
    assert "no.such.function" in told["c"]["error"]
    assert all(us > 0 for us in told["d"]["run_us"])


def test_each_timing_says_what_others_had_of_its_processors(tmp_path: Path, results: Path) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "double")])
    assert run_calls(batch, results) == 0
    told = read_results(results).calls["a"]
    assert told.disturbance is not None
    assert told.disturbance.candidates == 1
    assert told.disturbance.cores == os.cpu_count()
    assert told.disturbance.upper_bounds == is_disturbed(told.disturbed)


def test_one_that_never_returns_is_ended_at_its_deadline(tmp_path: Path, results: Path) -> None:
    calls = [call("a", "run_loop", timeout_sec=0.5), call("b", "double")]
    assert run_calls(write_batch(tmp_path / "batch", calls), results) == 0
    assert outcomes(results) == {"a": "run_timeout", "b": "ok"}


def test_what_was_killed_goes_on_and_measures_nothing_twice(tmp_path: Path, results: Path) -> None:
    calls = [call("a", "double"), call("b", "run_loop", timeout_sec=600.0), call("c", "double")]
    batch = write_batch(tmp_path / "batch", calls)
    for attempt in (1, 2):
        process = begin(batch, results)
        wait_for(partial(begun, results, "b", attempt), "the candidate that never returns")
        process.kill()
        process.communicate()
        assert outcomes(results) == {"a": "ok"}
    with results.open("a") as file:
        file.write('{"key": "c", "outcome": "o')  # the machine went down in the middle of a line
    process = begin(batch, results)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert outcomes(results) == {"a": "ok", "b": "worker_lost", "c": "ok"}, "b took its machine down twice"
    assert lines(results).count({"start": "a"}) == 1


@pytest.mark.parametrize("end", [signal.SIGTERM, None])
def test_the_end_of_the_time_says_nothing_of_a_candidate(
    tmp_path: Path, results: Path, end: signal.Signals | None
) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "run_sleep", timeout_sec=600.0), call("b", "double")])
    for attempt in (1, 2, 3):
        process = begin(batch, results, *([] if end else ["--seconds", "5"]))
        if end is not None:
            wait_for(partial(begun, results, "a", attempt), "the first candidate")
            process.send_signal(end)
        process.communicate(timeout=300)
        assert process.returncode == 3
    assert outcomes(results) == {}


def test_without_time_nothing_begins(tmp_path: Path, results: Path) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "double")])
    assert run_calls(batch, results, seconds=0) == 1
    assert not [line for line in lines(results) if "start" in line]


def test_only_one_process_at_a_time_writes_results(tmp_path: Path, results: Path) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "double")])
    mark = {"format": FORMAT, "batch": "0123456789abcdef", "digest": "of another"}
    held = ResultsFile(results, mark, {})
    with pytest.raises(BatchRefused, match="another process"):
        run_calls(batch, results)
    held.close()


def test_results_of_another_batch_are_not_gone_on_with(tmp_path: Path, results: Path) -> None:
    calls = [call("a", "double")]
    run_calls(write_batch(tmp_path / "batch", calls), results)
    with pytest.raises(BatchRefused, match="another batch"):
        run_calls(write_batch(tmp_path / "other", calls, batch="fedcba9876543210"), results)


def test_a_changed_library_is_refused(tmp_path: Path, results: Path) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "double")])
    with (batch / "double.so").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(BatchRefused, match=r"double\.so was changed"):
        run_calls(batch, results)
    assert not results.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"needs": HOST | {"machine": "riscv64"}}, "is for riscv64"),
        ({"needs": HOST | {"target": '{"kind":"llvm","num-cores":9999}'}}, "has 9999 cores"),
        ({"needs": HOST | {"flags": {"avx9000": "avx9000"}}}, "lacks avx9000"),
        ({"tvm": "0.1"}, "built by TVM 0.1"),
        ({"like": ["another-host", "0.27", 2]}, "do not compare"),
        ({"format": 1}, "format 1"),
    ],
)
def test_another_machine_is_refused(
    tmp_path: Path, results: Path, changes: dict[str, Any], words: str
) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "double")], **changes)
    with pytest.raises(BatchRefused, match=words):
        run_calls(batch, results)
    assert outcomes(results) == {}


def test_a_batch_does_not_go_on_on_a_device_of_another_class(tmp_path: Path, results: Path) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "double"), call("b", "double")])
    run_calls(batch, results, seconds=0)
    results.write_text(results.read_text().replace('"threads": 1', '"threads": 64'))
    with pytest.raises(BatchRefused, match="do not compare"):
        run_calls(batch, results)


@pytest.mark.parametrize(("factor", "outcome"), [(2.0, "ok"), (2.1, "wrong_result")])
def test_a_check_compares_what_a_candidate_computes(
    tmp_path: Path, results: Path, factor: float, outcome: str
) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "double")])
    write_manifest(batch, [call("a", "double", check=write_expected(batch, factor))])
    run_calls(batch, results)
    (told,) = (line for line in lines(results) if "key" in line)
    assert told["outcome"] == outcome
    assert bool(told.get("run_us")) == (outcome == "ok"), "what is wrong is not timed"
    assert (told["max_error"] < 1e-6) == (outcome == "ok")


def test_a_check_is_no_verdict_where_other_numbers_are_drawn(tmp_path: Path, results: Path) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "double")])
    check = write_expected(batch, 2.0) | {"inputs": 1}
    run_calls(write_manifest(batch, [call("a", "double", check=check)]), results)
    assert outcomes(results) == {"a": "run_error"}


def test_who_is_far_behind_in_a_race_is_timed_less(tmp_path: Path, results: Path) -> None:
    race = {"group": "p", "stopping": "racing", "evaluator": [1, 10, 20]}
    calls = [call("a", "double", **race), call("b", "double", **race, best_us=1e-3)]
    run_calls(write_batch(tmp_path / "batch", calls), results)
    counts = {line["key"]: len(line["run_us"]) for line in lines(results) if "key" in line}
    assert counts["a"] >= 10
    assert counts["b"] < 10


def test_a_file_that_is_no_batch_is_refused_in_a_sentence(tmp_path: Path, results: Path) -> None:
    (tmp_path / "batch.zip").write_bytes(b"PK\3\4 cut off")
    process = begin(tmp_path / "batch.zip", results)
    _, words = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "is not a batch, or is incomplete" in words
    assert "Traceback" not in words


@pytest.mark.skipif(LEVEL != WHOLE, reason=f"the sandbox of this kernel is {LEVEL}")
def test_candidates_run_in_the_sandbox_and_with_no_variable_of_the_user(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER_TOKEN", "secret")
    batch = write_batch(tmp_path / "batch", [call("a", "double")])
    session = DeviceProcess(json.loads((batch / MANIFEST).read_text()), batch, "require")
    try:
        assert session.device["sandbox"] == WHOLE
        process = Path("/proc", str(session.pid))
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert b"CLUSTER_TOKEN" not in (process / "environ").read_bytes()
        assert os.readlink(process / "fd" / "2").endswith("(deleted)"), "not the user's terminal"
    finally:
        session.close()


def test_a_batch_can_be_run_without_a_sandbox_and_the_results_say_so(tmp_path: Path, results: Path) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "double")])
    assert run_calls(batch, results, sandbox="off") == 0
    [device] = [line["device"] for line in lines(results) if "device" in line]
    assert device["sandbox"] == "off"


def test_a_required_sandbox_that_this_kernel_lacks_refuses_the_batch(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = write_batch(tmp_path / "batch", [call("a", "double")])
    (tmp_path / "landlock").mkdir()
    lacking = (
        "import mallorn.workers.sandbox.landlock as walls\n"
        "def version(): raise OSError(95, 'Operation not supported')\n"
        "walls.version = version\n"
    )
    (tmp_path / "landlock" / "sitecustomize.py").write_text(lacking)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "landlock"))
    with pytest.raises(BatchRefused, match=r"without Landlock .*--sandbox best-effort"):
        run_calls(batch, results, sandbox="require")


def test_the_program_needs_only_the_standard_library(tmp_path: Path) -> None:
    program = tmp_path / "run_batch.py"
    program.write_bytes(zip_program(parse_target({"kind": "llvm", "num-cores": 1})))
    command = [sys.executable, "-I", "-S", str(program), "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--sandbox" in said.stdout
