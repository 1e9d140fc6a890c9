"""Parts that are forks of the stack's interpreter, in an interpreter of their own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fixtures.command_line import ROOT

PROGRAM = """
import json, os, signal, sys, tempfile, threading, time, types
from pathlib import Path
from mallorn.stack.supervised_process import ChildSpec, SupervisedChild

folder = Path(sys.argv[1])
sys.modules["imported_before"] = types.ModuleType("imported_before")
held = open(folder / "held", "w")
signal.signal(signal.SIGTERM, lambda *_: None)

def main():
    import imported_before
    print(json.dumps({
        "words": [word for word in Path("/proc/self/cmdline").read_text().split("\\0") if word],
        "colour": os.environ["COLOUR"],
        "temporary": tempfile.gettempdir(),
        "leads": os.getsid(0) == os.getpid(),
        "sigterm": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "held": os.path.exists(f"/proc/self/fd/{held.fileno()}"),
        "forked": True,
    }), flush=True)
    EXTRA

if THREADED:
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
command = (sys.executable, "-c", "print('{}')", WORDS)
env = {"COLOUR": "blue", "TMPDIR": str(folder)}
child = SupervisedChild(ChildSpec("part", command, bool, env=env, main=main), folder / "part.log")
child.start()
assert child.wait_for_exit(60)
print(json.dumps({"code": child.exit_code, "said": child.last_lines(100)}))
"""


def ran(
    folder: Path, extra: str = "pass", threaded: bool = False, words: str = "'tuner1'"
) -> tuple[int, dict[str, Any], list[str]]:
    """The exit code of a part, what it told of itself, and all that it printed."""
    program = PROGRAM.replace("EXTRA", extra).replace("THREADED", str(threaded)).replace("WORDS", words)
    command = [sys.executable, "-c", program, str(folder)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told = json.loads(answer.stdout)
    return told["code"], json.loads(told["said"][0]), told["said"]


def test_a_part_is_a_fork_that_has_what_was_imported_and_an_environment_of_its_own(tmp_path: Path) -> None:
    code, told, _ = ran(tmp_path)
    assert code == 0
    assert told["forked"]
    assert (told["colour"], told["temporary"]) == ("blue", str(tmp_path))
    assert told["leads"]


def test_a_fork_has_neither_open_files_nor_signal_handlers_of_its_parent(tmp_path: Path) -> None:
    _, told, _ = ran(tmp_path)
    assert told["sigterm"]
    assert not told["held"]


def test_the_command_line_of_a_fork_is_that_of_its_command(tmp_path: Path) -> None:
    _, told, _ = ran(tmp_path)
    assert told["words"] == [sys.executable, "-c", "print('{}')", "tuner1"]


def test_a_command_line_longer_than_the_parents_is_shown_with_spaces(tmp_path: Path) -> None:
    _, told, _ = ran(tmp_path, words="'w' * len(Path('/proc/self/cmdline').read_bytes())")
    [words] = told["words"]
    assert words.startswith(f"{sys.executable} -c print('{{}}') www")
    assert words.endswith("www")


def test_a_fork_ends_with_its_exit_code_and_says_what_went_wrong(tmp_path: Path) -> None:
    assert ran(tmp_path, "sys.exit(3)")[0] == 3
    code, _, said = ran(tmp_path, "raise OSError('no disk')")
    assert code == 1
    assert said[-1] == "OSError: no disk"


def test_beside_a_second_thread_a_part_is_a_new_program(tmp_path: Path) -> None:
    _, told, _ = ran(tmp_path, threaded=True)
    assert told == {}
