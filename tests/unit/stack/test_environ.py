"""What the parts of a stack find in their environment."""

import os
from pathlib import Path

import pytest

import mallorn
from mallorn.core.installation import python_path


def test_a_part_finds_the_very_version_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    first, *others = python_path().split(os.pathsep)
    assert Path(first, "mallorn", "__init__.py") == Path(mallorn.__file__)
    assert others == ["/elsewhere"]
