"""Nothing that is stored or sent runs code when it is read: ruff sees to it, and these tests to ruff."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from kombu.exceptions import ContentDisallowed
from kombu.serialization import loads, prepare_accept_content

from benchmarks.house_tree import RESEARCH, ROOMS
from mallorn.core.queues import celery_settings
from tests.fixtures.command_line import TIMEOUT_SEC

ROOT: Final = Path(__file__).parents[2]
RULES: Final = "S102|S30[1-7]|S506|S60[245]|S614|TID251"
# By what ruff says of them in any room of the product.
FORBIDDEN: Final = {
    "import pickle": "TID251",
    "from pickle import loads": "TID251",
    "import marshal": "TID251",
    "import shelve": "TID251",
    "import dill": "TID251",
    "import joblib": "TID251",
    "import cloudpickle": "TID251",
    "import multiprocessing": "TID251",
    "import torch\ntorch.load('x', weights_only=True)": "TID251",
    "import torch\ntorch.export.load('x')": "TID251",
    "import pandas\npandas.read_pickle('x')": "TID251",
    "from sqlalchemy import PickleType": "TID251",
    "from concurrent.futures import ProcessPoolExecutor": "TID251",
    "import yaml\nyaml.load('x', Loader=yaml.Loader)": "S506",
    "eval('x')": "S307",
    "exec('x')": "S102",
    "import os\nos.system('x')": "S605",
    "import subprocess\nsubprocess.run('x', shell=True)": "S602",
}


def product() -> Iterator[Path]:
    return (file for room in (*ROOMS, RESEARCH) for file in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ["services/x.py", "graphc/conv/x.py", "costmodels/x.py"])
@pytest.mark.parametrize("text", FORBIDDEN)
def test_ruff_refuses_what_runs_code_from_data(text: str, room: str) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", room, "-"],
        input=text,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SEC,
    )
    assert FORBIDDEN[text] in said.stdout, said


def test_nobody_is_excused_from_these_rules_but_the_test_that_nobody_pickles() -> None:
    excuse = re.compile(rf"noqa:.*\b(?:{RULES})\b")
    excused = {str(file.relative_to(ROOT)) for file in product() if excuse.search(file.read_text())}
    assert excused == {"costmodels/testing.py"}


def test_arrays_are_read_without_pickles() -> None:
    """What no rule of ruff's sees: numpy's own default is the safe one."""
    for file in product():
        for node in ast.walk(ast.parse(file.read_text())):
            for word in node.keywords if isinstance(node, ast.Call) else ():
                if word.arg == "allow_pickle":
                    assert ast.unparse(word.value) == "False", f"{file}, line {node.lineno}"


def test_a_message_that_is_no_json_is_not_read() -> None:
    accepted = prepare_accept_content(celery_settings("memory://")["accept_content"])
    assert loads(b"[]", "application/json", "utf-8", accept=accepted) == []
    with pytest.raises(ContentDisallowed):
        loads(b"cos\nsystem\n", "application/x-python-serialize", "binary", accept=accepted)
