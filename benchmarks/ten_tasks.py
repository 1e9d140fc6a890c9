"""Type the ten tasks of docs/ten-tasks.md as a newcomer does, and take the seconds of each.

make wheel && python -m benchmarks.ten_tasks MODEL.onnx [--page PAGE] [--url URL] [--json FILE]

A section of the page is a task; its `sh` blocks are typed in a new environment with an empty home, in an
empty folder that has the model and the wheels. URL is a service that stands for the team's fleet.
benchmarks/data/ten_tasks_before.md types what the same tasks took before.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.hosts import describe_host
from benchmarks.install import newcomer_environment

PAGE: Final = Path(__file__).parents[1] / "docs" / "ten-tasks.md"
FLEET: Final = "http://tuner.example:8000"  # as the page writes it


@dataclass(frozen=True)
class Task:
    """A section of the page: its title, the lines to type, and the package that they need besides."""

    title: str
    code: str
    needs: str = ""

    @property
    def commands(self) -> int:
        """Return the number of commands; a file or program that is typed counts as its command's."""
        return len(list(commands(self.code)))


def read_tasks(page: str) -> Iterator[Task]:
    """Yield the tasks of a page in their order."""
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        for block in text.split("\n```sh")[1:]:
            fence, _, code = block.partition("\n")
            yield Task(title, code.partition("\n```")[0] + "\n", fence.strip().removeprefix("needs="))


def commands(code: str) -> Iterator[str]:
    """Yield the first lines of the commands; lines within quotes and here-documents are parts of one."""
    end = ""
    for line in code.splitlines():
        if end:
            is_end = line == end if end != "'" else line.count("'") % 2 == 1
            end = "" if is_end else end
        elif line.strip():
            yield line
            if "<<'" in line:
                end = line.partition("<<'")[2].partition("'")[0]
            elif line.count("'") % 2:
                end = "'"


def type_task(task: Task, folder: Path, env: Mapping[str, str], url: str = FLEET) -> str:
    """Type a task in this folder; return what it printed. Raises CalledProcessError with the output."""
    words = ["bash", "-euo", "pipefail", "-c", task.code.replace(FLEET, url)]
    done = subprocess.run(
        words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, task.title, done.stdout)
    return done.stdout


def main() -> None:
    args = _arguments()
    rows = []
    with TemporaryDirectory() as parent:
        folder, home = Path(parent, "work"), Path(parent, "home")
        folder.mkdir(), home.mkdir()
        shutil.copy(args.model, folder / "model.onnx")
        for wheel in args.dist.glob("*.whl"):
            shutil.copy(wheel, folder)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        venv.create(home / "env", with_pip=True)
        env = newcomer_environment(home) | {
            "CHECKOUT": str(PAGE.parents[1]),
            "PATH": f"{home}/env/bin{os.pathsep}{os.environ['PATH']}",
        }
        for task in read_tasks(args.page.read_text()):
            if task.needs:
                environment = next(path for path in (folder / "mallorn/.venv", home / "env") if path.exists())
                subprocess.run([environment / "bin/pip", "install", "-q", task.needs], env=env, check=True)
            started_sec = time.perf_counter()
            printed = type_task(task, folder, env, args.url)
            seconds = round(time.perf_counter() - started_sec, 1)
            rows.append({"task": task.title, "commands": task.commands, "seconds": seconds})
            print(f"{task.title:30} {task.commands:3} commands {seconds:7.1f} s", flush=True)
            print(printed, file=sys.stderr)
    if args.json:
        args.json.write_text(
            json.dumps({**describe_host(), "page": args.page.name, "rows": rows}, indent=1) + "\n"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--dist", type=Path, default=Path("dist"))
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--url", default=FLEET)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
