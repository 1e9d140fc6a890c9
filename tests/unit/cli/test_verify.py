"""`mallorn verify`: what its checks say, which exit code they have, and what is kept as proof."""

import json
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mallorn.cli.schedule_directory import ScheduleDirectory, read_schedule_directory
from mallorn.cli.verify import (
    Check,
    CheckKind,
    CheckOutcome,
    ExitCode,
    Verification,
    check_applied,
    find_baseline,
    judge_latency,
    proof_key,
    read_kept_latency,
    read_proof,
    to_junit,
    to_markdown,
)
from mallorn.core.errors import InvalidRequest
from mallorn.core.values.finish_report import ModelLatency
from mallorn.core.values.manifest import RECORDS
from mallorn.workers.interfaces.model_compiler import BadLine, Compiled
from tests.unit.cli.test_exported import RECIPE, TARGET
from zoo import MODELS


def latency(median: float, spread: float = 0.0) -> ModelLatency:
    return ModelLatency(median=median, low=median - spread, high=median + spread)


@pytest.fixture
def exported(tmp_path: Path) -> ScheduleDirectory:
    folder = tmp_path / "schedules"
    folder.mkdir()
    manifest = {"target": TARGET, "recipe": RECIPE, "without_schedule": ["odd"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return read_schedule_directory(folder, None)


def compiled(**changes: Any) -> Compiled:
    values = {"found": 2, "of": 2, "missing": [], "problems": [], "applied": ["a", "b"]}
    return Compiled(**{"inputs": [], "outputs": [], "bytes": 1, "seconds": 0.0, **values, **changes})


def outcomes(checks: list[Check]) -> dict[str, CheckOutcome]:
    return {check.name: check.outcome for check in checks}


def test_a_workload_passes_if_its_function_in_the_compiled_module_comes_from_a_record(
    exported: ScheduleDirectory,
) -> None:
    assert outcomes(check_applied(compiled(), exported)) == dict.fromkeys("ab", CheckOutcome.PASSED)


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"applied": ["a"]}, "compiled module"),  # found in the records, but not in the module
        ({"of": 3, "missing": ["new"]}, "new"),
        ({"problems": [BadLine(RECORDS, 7, "torn")]}, f"{RECORDS}, line 7"),
    ],
)
def test_what_does_not_come_from_a_record_fails(
    changes: dict[str, Any], failed: str, exported: ScheduleDirectory
) -> None:
    checks = check_applied(compiled(**changes), exported)
    assert [check.name for check in checks if check.outcome is CheckOutcome.FAILED] == [failed]
    assert (
        Verification(model="m", schedules="s", checks=checks, latency_us={}).exit_code is ExitCode.NOT_APPLIED
    )


def test_a_workload_for_which_the_job_found_nothing_is_not_judged(exported: ScheduleDirectory) -> None:
    checks = check_applied(compiled(of=3, missing=["odd"]), exported)
    assert outcomes(checks)["odd"] is CheckOutcome.NOT_JUDGED


@pytest.mark.parametrize(
    ("tuned", "outcome"),
    [
        (latency(100), CheckOutcome.PASSED),
        (latency(109), CheckOutcome.PASSED),
        (latency(120), CheckOutcome.FAILED),
        (latency(120, spread=30), CheckOutcome.PASSED),  # may be chance
    ],
)
def test_slower_than_the_tolerance_fails_unless_it_may_be_chance(
    tuned: ModelLatency, outcome: CheckOutcome
) -> None:
    assert judge_latency(tuned, latency(100), 0.1).outcome is outcome


FAILED = Verification(
    model="m.onnx",
    schedules="schedules",
    latency_us={},
    checks=[
        Check(kind=CheckKind.APPLIED, name="a", outcome=CheckOutcome.PASSED),
        Check(kind=CheckKind.NUMBERS, name="numbers", outcome=CheckOutcome.FAILED, text="1e-2 | <more>"),
        Check(kind=CheckKind.LATENCY, name="latency", outcome=CheckOutcome.NOT_JUDGED, text="elsewhere"),
    ],
)


def test_the_first_failure_gives_the_exit_code() -> None:
    assert FAILED.exit_code is ExitCode.WRONG_NUMBERS
    slower = FAILED.checks[2].model_copy(update={"outcome": CheckOutcome.FAILED})
    assert FAILED.model_copy(update={"checks": [slower]}).exit_code is ExitCode.SLOWER


def test_junit_has_a_case_per_check() -> None:
    suite = ElementTree.fromstring(to_junit(FAILED))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {"a": [], "numbers": ["failure"], "latency": ["skipped"]}
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "1e-2 | <more>"


def test_markdown_counts_workloads_and_lists_what_is_not_one_that_passed() -> None:
    text = to_markdown(FAILED)
    assert "1 of 1 workloads" in text
    assert "| ❌ | numbers | 1e-2 \\| <more> |" in text
    assert "| ✅ | a |" not in text


def test_only_a_verification_that_passed_is_a_proof(tmp_path: Path) -> None:
    passed = FAILED.model_copy(update={"checks": FAILED.checks[:1]})
    for verification, known in ((passed, passed), (FAILED, None)):
        (tmp_path / "proof.json").write_text(verification.model_dump_json())
        assert read_proof(tmp_path / "proof.json") == known
    (tmp_path / "proof.json").write_text("{")
    assert read_proof(tmp_path / "proof.json") is None
    assert read_proof(tmp_path / "absent.json") is None


def test_a_proof_counts_for_the_same_content_only(exported: ScheduleDirectory, tmp_path: Path) -> None:
    model, baseline = tmp_path / "m.onnx", tmp_path / "base.so"
    model.write_bytes(MODELS["mlp"](0).SerializeToString())
    baseline.write_bytes(b"1")
    keys = [proof_key(model, exported, None, 0.1)]
    assert keys == [proof_key(model, exported, None, 0.1)]
    keys += [proof_key(model, exported, None, 0.2), proof_key(model, exported, baseline, 0.1)]
    baseline.write_bytes(b"2")
    keys.append(proof_key(model, exported, baseline, 0.1))
    (exported.directory / RECORDS).write_text("[]\n")
    keys.append(proof_key(model, exported, None, 0.1))
    model.write_bytes(MODELS["mlp"](1).SerializeToString())
    keys.append(proof_key(model, exported, None, 0.1))
    assert len(set(keys)) == len(keys)


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.email=a@example.org", "-c", "user.name=a")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_a_baseline_is_a_path_or_a_git_revision(exported: ScheduleDirectory, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (exported.directory / RECORDS).write_text("before\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "before")
    (exported.directory / RECORDS).write_text("after\n")
    with find_baseline(exported.directory, "HEAD") as found:
        assert found is not None
        assert (found / RECORDS).read_text() == "before\n"
    with find_baseline(exported.directory, str(tmp_path)) as found:
        assert found == tmp_path
    with find_baseline(exported.directory, None) as found:
        assert found is None


@pytest.mark.parametrize("name", ["nowhere", "--output=/tmp/x"])
def test_what_is_neither_is_refused(name: str, exported: ScheduleDirectory) -> None:
    with (
        pytest.raises(InvalidRequest, match="is no path, and git has no such revision"),
        find_baseline(exported.directory, name),
    ):
        pass


def test_the_kept_latency_is_that_of_the_report(exported: ScheduleDirectory) -> None:
    assert read_kept_latency(exported) is None
    report = {"latency_us": {"tuned": latency(5).model_dump()}}
    (exported.directory / "report.json").write_text(json.dumps(report))
    assert read_kept_latency(exported) == latency(5)
