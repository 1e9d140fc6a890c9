"""Processes that load TVM go without torch, installed or not."""

import subprocess
import sys

import pytest

from tests.fixtures.command_line import ROOT

SAYS = """
try:
    import torch
except ModuleNotFoundError as error:
    print(error.name)
import json.decoder
"""


@pytest.mark.parametrize("before", ["", "sys.path.insert(0, folder)"], ids=["absent", "installed"])
def test_torch_is_as_if_it_were_not_installed_and_all_else_is_found(
    tmp_path_factory: pytest.TempPathFactory, before: str
) -> None:
    folder = tmp_path_factory.mktemp("installed")
    (folder / "torch.py").write_text("")
    program = f"""
import sys
folder = {str(folder)!r}
{before}
from mallorn.workers.subprocesses.hide_torch import hide_torch
hide_torch()
{SAYS}"""
    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert answer.stdout == "torch\n", answer.stderr
