"""When the embedded stack takes jobs, and when it ends; its coordinator and its workers are stand-ins."""

import subprocess
import sys
from pathlib import Path

from mallorn.stack.data_directory import DataDir
from tests.fixtures.command_line import ROOT, clean_environment
from tests.fixtures.processes import STOP_SEC, end
from tests.fixtures.waiting import wait_for

# The coordinator answers, and no other part becomes ready.
PROGRAM = """
import signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from mallorn.core.settings import Settings
from mallorn.stack.data_directory import DataDir
from mallorn.core.address_checks import free_port
from mallorn.stack.run_stack import run_stack
from mallorn.stack.process_specs import StackLayout

class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

def main(words):
    if words[0] == "serve":
        HTTPServer(("127.0.0.1", port), Answers).serve_forever()
    signal.pause()

data = DataDir(Path(sys.argv[1]))
port = free_port()
layout = StackLayout(data, "127.0.0.1", port, f"127.0.0.1:{free_port(excluded=(port,))}", 1)
with data.hold_stack_lock():
    run_stack(layout, Settings(data_dir=data.path, shipped=False), True, print, main)
"""


def test_a_stack_takes_jobs_before_a_worker_is_ready_and_ends_without_users_all_the_same(
    tmp_path: Path,
) -> None:
    data = DataDir(tmp_path / "data")
    data.create_directories()
    with data.hold_user_lock():
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(data.path)],
            cwd=ROOT,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(lambda: data.read_stack() or process.poll() is not None, "a stack that takes jobs", 300)
            assert process.poll() is None
            assert not list(data.socket_directory.glob("*.ready"))
        except BaseException:
            end(process)
            raise
    said, _ = process.communicate(timeout=STOP_SEC)
    assert process.returncode == 0
    assert "coordinator is ready" in said
    assert "worker-1 is ready" not in said
    assert said.endswith("stopping\n")


def imported(statement: str, answer: str) -> str:
    """What an interpreter prints that ran a statement."""
    command = [sys.executable, "-c", f"{statement}\nprint({answer})"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def test_the_programs_of_the_stack_import_no_client_no_web_and_no_database_before_they_begin() -> None:
    heavy = "{'httpx', 'fastapi', 'celery', 'sqlalchemy', 'numpy', 'tvm', 'torch', 'onnx', 'pyarrow'}"
    programs = "import sys, mallorn.workers.device.serve_device\n"
    programs += "from mallorn.cli import main, run_service_part, up"
    assert imported(programs, f"sorted({heavy} & sys.modules.keys())") == "[]"


def test_what_is_imported_for_forks_starts_no_thread_and_makes_no_celery_app() -> None:
    shared = "for each in (COORDINATOR_MODULE, *CELERY_MODULES): import_module(each)"
    names = "from mallorn.stack.run_stack import COORDINATOR_MODULE, CELERY_MODULES"
    statement = (
        f"import sys\nfrom importlib import import_module\n{names}\n{shared}\nimport mallorn.db.migrate"
    )
    assert (
        imported(f"{statement}\nfrom mallorn.stack.supervised_process import can_fork", "can_fork()")
        == "True"
    )
    apps = "{'mallorn.workers.app', 'mallorn.services.control.app', 'numpy'} & sys.modules.keys()"
    assert imported(statement, f"sorted({apps})") == "[]"
