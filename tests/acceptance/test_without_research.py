"""Tests of the service pass where mallorn-research is not installed (tests/fixtures/without_research)."""

import os
import subprocess
import sys

import pytest

from tests.fixtures.command_line import ROOT, WITHOUT_RESEARCH

PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:schemathesis",
    "-p",
    "no:cacheprovider",
    "-m",
    "not long",
]


def check_tests(*words: str) -> None:
    """Assert that these tests pass in a process that cannot import mallorn-research."""
    env = {**os.environ, "PYTHONPATH": str(WITHOUT_RESEARCH)}
    run = subprocess.run([*PYTEST, *words], cwd=ROOT, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]


def test_each_contract_and_each_decision_of_the_service_is_kept() -> None:
    files = [
        *("searchers/test_contract.py", "searchers/test_portfolio.py", "costmodels/test_contract.py"),
        *("features/test_extractors.py", "workers/test_doors.py", "core/test_libraries.py"),
        *("core/test_kept_options.py", "cli/test_plugin_commands.py", "planner"),
    ]
    check_tests(*(f"tests/unit/{file}" for file in files))


@pytest.mark.long
def test_all_unit_tests_pass() -> None:
    check_tests("-n", "3", "--dist", "loadfile", "tests/unit")
