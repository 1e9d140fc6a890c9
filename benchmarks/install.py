"""Install the wheel as people do, in clean environments, and take the seconds.

make wheel && python -m benchmarks.install --python python3.11 python3.12 python3.13 [--json FILE]

For each Python: a virtual environment and pip, `uvx` and `pipx run`, each with an empty cache and a home
of its own, until `mallorn --version` has printed. PyPI or its mirror is a part of what is measured. After
pip, `mallorn check` runs, and its last line is kept.
"""

import argparse
import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.hosts import describe_host

TOOLS: Final = ("uv==0.13.8", "pipx==1.18.4")
# Variables that say where packages come from and which certificates are trusted, by their beginnings.
KEPT: Final = ("PATH", "LANG", "PIP_", "UV_", "SSL_", "REQUESTS_CA_BUNDLE")


def main() -> None:
    args = _arguments()
    (wheel,) = args.dist.resolve().glob("mallorn-*.whl")
    rows = []
    with TemporaryDirectory() as folder:
        tools = Path(folder, "tools")
        _run(["python3", "-m", "venv", str(tools)], Path(folder))
        _run([str(tools / "bin/pip"), "--quiet", "install", *TOOLS], Path(folder))
        for number, python in enumerate(args.python):
            rows += install(wheel, python, tools / "bin", Path(folder, str(number)))
    for row in rows:
        print(f"{row['python']:8} {row['by']:5} {row['seconds']:7.1f} s  {row['printed']}")
    if args.json:
        args.json.write_text(
            json.dumps({**describe_host(), "wheel": wheel.name, "rows": rows}, indent=1) + "\n"
        )


def install(wheel: Path, python: str, tools: Path, folder: Path) -> list[dict[str, object]]:
    """Install `wheel` for one Python by pip, uvx and pipx; return a row for each."""
    folder.mkdir()
    interpreter = _run([python, "-c", "import sys; print(sys.executable)"], folder)
    venv, mallorn = folder / "venv", str(folder / "venv/bin/mallorn")
    commands = {
        "pip": [
            [interpreter, "-m", "venv", str(venv)],
            [str(venv / "bin/pip"), "--quiet", "install", "--no-cache-dir", str(wheel)],
            [mallorn, "--version"],
        ],
        "uvx": [
            [
                str(tools / "uvx"),
                "--quiet",
                "--python",
                interpreter,
                "--from",
                str(wheel),
                "mallorn",
                "--version",
            ]
        ],
        "pipx": [
            [
                str(tools / "pipx"),
                "run",
                "--no-cache",
                "--python",
                interpreter,
                "--spec",
                str(wheel),
                "mallorn",
                "--version",
            ]
        ],
    }
    rows: list[dict[str, object]] = []
    for by, lines in commands.items():
        (home := folder / by).mkdir()
        started_sec = time.perf_counter()
        for line in lines:
            printed = _run(line, home)
        seconds = round(time.perf_counter() - started_sec, 1)
        rows.append({"python": Path(python).name, "by": by, "seconds": seconds, "printed": printed})
    rows[0]["check"] = _run([mallorn, "check"], folder).splitlines()[-1]
    return rows


def newcomer_environment(home: Path) -> dict[str, str]:
    """Return the variables of a user with this home, who finds packages as this process does."""
    return {name: text for name, text in os.environ.items() if name.startswith(KEPT)} | {"HOME": str(home)}


def _run(command: Sequence[str], home: Path) -> str:
    """Run a command with an empty home; return what it printed. Raises CalledProcessError."""
    env = newcomer_environment(home)
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dist", type=Path, default=Path("dist"))
    parser.add_argument("--python", nargs="+", default=["python3"])
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
