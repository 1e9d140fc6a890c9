"""The wheel holds every file of the packages, and what is installed from it compiles.

What is typed with it in an empty home is in test_ten_tasks.py.
"""

import subprocess
import zipfile
from pathlib import Path
from typing import Final

from benchmarks.house_tree import ROOMS
from tests.fixtures.command_line import ROOT
from tests.fixtures.wheel import tracked

#: What builds the page, and the description of the API: no process of an installation reads them.
FOR_DEVELOPERS: Final = (
    *("services/dashboard/web/", "services/dashboard/node.sh", "services/dashboard/browser.sh"),
    *("services/dashboard/.gitignore", "services/openapi.json"),
)


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    names = [name for name in tracked(*ROOMS) if not (ROOT / name).is_symlink()]
    names = [name for name in names if not name.startswith(FOR_DEVELOPERS)]
    wanted = {f"mallorn/{name.removeprefix('mallorn/')}" for name in names}
    with zipfile.ZipFile(wheel) as archive:
        installed = set(archive.namelist())
    assert not wanted - installed
    metadata = f"{wheel.name.partition('-py3')[0]}.dist-info"
    assert {name.partition("/")[0] for name in installed} == {"mallorn", metadata}


def test_every_module_compiles(installed_mallorn: Path) -> None:
    python = installed_mallorn.with_name("python")
    site = next(installed_mallorn.parents[1].glob("lib/python*/site-packages"))
    command = [python, "-m", "compileall", "-q", str(site / "mallorn")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
