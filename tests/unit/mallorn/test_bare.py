"""The base install: a client and its command line, without compilers, databases and web frameworks."""

import subprocess
import sys

import pytest

from tests.fixtures.command_line import ROOT, TIMEOUT_SEC

HEAVY = ("tvm", "sqlalchemy", "fastapi", "celery", "numpy", "onnx", "alembic", "fsspec", "uvicorn", "redis")
ABSENT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed", name=name)
sys.meta_path.insert(0, Absent())
"""


def bare(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program where nothing but the base install can be imported."""
    command = [sys.executable, "-c", ABSENT + program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SEC)


def test_the_client_needs_none_of_them() -> None:
    result = bare("import mallorn; mallorn.Client('http://127.0.0.1:1'); print(mallorn.__version__)")
    assert (result.returncode, result.stderr) == (0, "")


def test_importing_the_package_loads_nothing_of_a_service() -> None:
    program = f"""
import sys
import mallorn
assert callable(mallorn.tune)
print([name for name in sys.modules if name.partition(".")[0] in {(*HEAVY, "typer")!r}])
"""
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SEC)
    assert (result.stdout, result.stderr) == ("[]\n", "")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["submit", "--help"], ["tune", "--help"]])
def test_the_command_line_needs_none_of_them(words: list[str]) -> None:
    result = bare(f"from mallorn.cli.main import app; app({words!r})")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("words", [["jobs"], ["jobs", "list"], ["show", "j"], ["jobs", "show", "j"]])
def test_a_command_loads_only_its_own_file(words: list[str]) -> None:
    others = "mallorn.cli.tune_and_resume", "mallorn.cli.explain_and_compare", "mallorn.stack.run_stack"
    program = (
        "from mallorn.cli.main import app\n"
        f"try: app({[*words, '--url', 'http://127.0.0.1:1']!r})\n"
        f"except SystemExit as end: print(end.code, sys.modules.keys() & {set(others)!r})"
    )
    assert bare(program).stdout == "6 set()\n"
