"""What all tests share, in tests and research/tests: fixtures, kits, and patience with busy machines."""

# ruff: noqa: E402 - first of all
from tests.fixtures.world import leave_the_users

leave_the_users()

import gc
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.fixtures.pairwise import mark_the_rest
from tests.fixtures.quick_stacks import use_quick_stacks

SLOWEST = 5  # tests of a stage that are named where it passes its budget
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples in every run: it fails for what was changed and not for what was drawn that day.
settings.register_profile("patient", PATIENT, derandomize=True)
settings.register_profile("searching", PATIENT, derandomize=False, max_examples=1000)
settings.load_profile("patient")

# What a terminal, a CI service or a proxy says of itself changes what is printed and who is asked; tests
# that are about one of these say it anew.
TOLD_BY_OTHERS = (
    *("TERM", "COLUMNS", "LINES", "TERMINAL_WIDTH", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE"),
    *("TTY_COMPATIBLE", "TTY_INTERACTIVE", "CI", "GITHUB_ACTIONS"),
    "PYTHONUNBUFFERED",
    *("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
)
for name in TOLD_BY_OTHERS:
    os.environ.pop(name, None)

use_quick_stacks()

# Until all tests are collected: the collector would find nothing, in a fourth of that time.
gc.disable()

# TVM binds a thread that runs compiled code to a processor, and what a later test starts would inherit that.
PROCESSORS = os.sched_getaffinity(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    os.sched_setaffinity(0, PROCESSORS)


# Before anything imports a kit: tests in one folder may use the kit of another room.
pytest.register_assert_rewrite(
    "mallorn.costmodels.testing",
    "mallorn.searchers.testing",
    "tests.fixtures.answers",
    "tests.kits",
)

pytest_plugins = [
    "tests.fixtures.other_cpu",
    "tests.fixtures.answers",
    "tests.fixtures.control_groups",
    "tests.fixtures.coordinator",
    "tests.fixtures.database",
    "tests.fixtures.made_up_gpus",
    "tests.fixtures.filled_dataset",
    "tests.fixtures.fleet",
    "tests.fixtures.issuer",
    "tests.fixtures.kept",
    "tests.fixtures.made_up_engines",
    "tests.fixtures.models",
    "tests.fixtures.pooler",
    "tests.fixtures.scheduling",
    "tests.fixtures.service",
    "tests.fixtures.wheel",
    "tests.fixtures.regions",
    "tests.fixtures.runtime_wheel",
    "tests.fixtures.ten_tasks",
    "tests.fixtures.workshop",
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before tests are chosen by their marks."""
    mark_the_rest(items)


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not look through it in every test."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-kept", action="store_true", help="write the kept texts anew (tests/kept)")
    parser.addoption("--told", type=Path, help="a file for what `make test` shows of a stage")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if file := config.getoption("--told"):
        stats = terminalreporter.stats
        numbers = {how: len(stats[how]) for how in ("passed", "failed", "error", "skipped") if stats.get(how)}
        seconds: Counter[str] = Counter()
        for report in (report for reports in stats.values() for report in reports):
            seconds[getattr(report, "nodeid", "")] += getattr(report, "duration", 0.0)
        slowest = [(seconds, test) for test, seconds in seconds.most_common(SLOWEST)]
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"numbers": numbers, "slowest": slowest}))
