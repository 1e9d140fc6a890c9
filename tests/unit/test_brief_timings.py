"""Processes of services under test time briefly: what they find is not asserted, and others wait for it."""

import subprocess
import sys

from tests.fixtures.command_line import clean_environment

LOOK = """
from importlib import import_module
from sitecustomize import BRIEF
for name, told in BRIEF.items():
    for constant, value in told.items():
        assert getattr(import_module(name), constant) == value, constant
        print(constant)
"""


def test_each_constant_is_brief_in_a_process_of_a_service() -> None:
    command = [sys.executable, "-P", "-c", LOOK]
    found = subprocess.run(command, env=clean_environment(), check=True, capture_output=True, text=True)
    assert "MOST_RACES" in found.stdout
