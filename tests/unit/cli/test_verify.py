"""`mallorn verify`: what its checks say, which exit code they have, and what is kept as proof."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mallorn.cli.schedule_directory import ScheduleDirectory, read_schedule_directory
from mallorn.cli.verify_and_retune import (
    Check,
    Verification,
    check_applied,
    judge_latency,
    proof_file,
    read_proof,
    to_junit,
    to_markdown,
)
from mallorn.core.errors import ExitCode
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


def outcomes(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.outcome for check in checks}


def test_a_workload_passes_if_its_function_in_the_compiled_module_comes_from_a_record(
    exported: ScheduleDirectory,
) -> None:
    assert outcomes(check_applied(compiled(), exported)) == dict.fromkeys("ab", "passed")


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
    assert [check.name for check in checks if check.outcome == "failed"] == [failed]
    assert Verification(model="m", checks=checks).exit_code is ExitCode.NOT_APPLIED


def test_a_workload_for_which_the_job_found_nothing_is_not_judged(exported: ScheduleDirectory) -> None:
    checks = check_applied(compiled(of=3, missing=["odd"]), exported)
    assert outcomes(checks)["odd"] == "not judged"


def test_with_a_baseline_its_manifest_decides_what_is_not_judged(exported: ScheduleDirectory) -> None:
    manifest = exported.manifest.model_copy(update={"without_schedule": ["old"]})
    rival = replace(exported, manifest=manifest)
    checks = outcomes(check_applied(compiled(of=4, missing=["odd", "old"]), exported, rival))
    assert (checks["odd"], checks["old"]) == ("failed", "not judged")


def test_a_name_adds_no_row_to_the_summary() -> None:
    check = Check(kind="numbers", name="a | passed |\n| numbers", outcome="failed", text="\\| passed |")
    lines = to_markdown(Verification(model="m", checks=[check])).splitlines()
    assert lines[-1] == "| a \\| passed \\| \\| numbers | failed | \\\\\\| passed \\| |"


@pytest.mark.parametrize(
    ("tuned", "outcome"),
    [
        (latency(100), "passed"),
        (latency(109), "passed"),
        (latency(120), "failed"),
        (latency(120, spread=30), "passed"),  # may be chance
    ],
)
def test_slower_than_the_tolerance_fails_unless_it_may_be_chance(tuned: ModelLatency, outcome: str) -> None:
    assert judge_latency(tuned, latency(100), 0.1).outcome == outcome


FAILED = Verification(
    model="m.onnx",
    latency_us={},
    checks=[
        Check(kind="applied", name="a", outcome="passed"),
        Check(kind="numbers", name="numbers", outcome="failed", text="1e-2 | <more>"),
        Check(kind="latency", name="latency", outcome="not judged", text="elsewhere"),
    ],
)


def test_the_first_failure_gives_the_exit_code() -> None:
    assert FAILED.exit_code is ExitCode.CHECK_FAILED
    slower = FAILED.checks[2].model_copy(update={"outcome": "failed"})
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
    assert "| numbers | failed | 1e-2 \\| \\<more\\> |" in text
    assert "| a |" not in text


HOSTILE = "x | passed | ![now](https://elsewhere.example/a) <img> `b`\n\n# all passed\x1b[2J\x00"
NAMED_BY_A_STRANGER = Verification(
    model=HOSTILE, checks=[Check(kind="applied", name=HOSTILE, outcome="failed", text=HOSTILE)]
)


def test_names_of_a_strangers_model_add_no_rows_links_or_html_to_markdown() -> None:
    lines = to_markdown(NAMED_BY_A_STRANGER).splitlines()
    assert len(lines) == 7
    assert all(line.isprintable() for line in lines)
    for line in (lines[0], lines[-1]):
        assert not re.search(r"(?<!\\)(\[|\]|<|>|`|://)", line)
    assert len(re.findall(r"(?<!\\)\|", lines[-1])) == 4, "the row has three cells"


def test_names_of_a_strangers_model_leave_junit_readable() -> None:
    suite = ElementTree.fromstring(to_junit(NAMED_BY_A_STRANGER))
    assert [case.tag for case in suite] == ["testcase"]


def test_a_damaged_proof_is_none(tmp_path: Path) -> None:
    (tmp_path / "proof.json").write_text(FAILED.model_dump_json())
    assert read_proof(tmp_path / "proof.json") == FAILED
    (tmp_path / "proof.json").write_text("{")
    assert read_proof(tmp_path / "proof.json") is None
    assert read_proof(tmp_path / "absent.json") is None


def test_a_proof_counts_for_the_same_content_only(exported: ScheduleDirectory, tmp_path: Path) -> None:
    model, baseline = tmp_path / "m.onnx", replace(exported, directory=tmp_path / "baseline")
    model.write_bytes(MODELS["mlp"](0).SerializeToString())
    baseline.directory.mkdir()
    files = [proof_file(model, exported, None, 0.1)]
    assert files == [proof_file(model, exported, None, 0.1)]
    files += [proof_file(model, exported, None, 0.2), proof_file(model, exported, baseline, 0.1)]
    (baseline.directory / RECORDS).write_text("[]\n")
    files.append(proof_file(model, exported, baseline, 0.1))
    (exported.directory / RECORDS).write_text("[]\n")
    files.append(proof_file(model, exported, None, 0.1))
    model.write_bytes(MODELS["mlp"](1).SerializeToString())
    files.append(proof_file(model, exported, None, 0.1))
    assert len(set(files)) == len(files)


def test_without_a_baseline_the_latency_is_not_judged() -> None:
    assert judge_latency(latency(100), None, 0.1).outcome == "not judged"
