"""Find where this Mallorn is installed, and name commands that install its extras."""

import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import MissingPackage as MissingPackage

#: The package of searchers, cost models and tools that no default uses. Its folder in a
#: checkout is `research`.
RESEARCH: Final = "mallorn-research"
#: The folder that contains the package `mallorn`: site-packages or a checkout.
IMPORT_ROOT: Final = Path(__file__).resolve().parents[2]


def python_path(environment: Mapping[str, str] = os.environ) -> str:
    """Return a PYTHONPATH with which a child process imports this Mallorn."""
    return os.pathsep.join([str(IMPORT_ROOT), *filter(None, [environment.get("PYTHONPATH")])])


#: Extras whose packages, and what Mallorn does with them, need Linux.
LINUX_ONLY: Final = frozenset({"device", "server", "worker"})


def missing_package(
    message: str, extras: str, alternative: str = "", package: str = "mallorn"
) -> MissingPackage:
    """Return an error with the pip command for `extras` and an alternative to it, or with
    what to do where they cannot run."""
    if sys.platform != "linux" and (package == RESEARCH or LINUX_ONLY & set(extras.split(","))):
        return MissingPackage(
            f"{message}; it runs on Linux only", hint="set MALLORN_URL to a service on a Linux machine"
        )
    return MissingPackage(message, hint=pip_install_command(extras, package) + alternative)


def pip_install_command(extras: str, package: str = "mallorn") -> str:
    """Return the pip command that installs a package of Mallorn with extras such as `server,worker`."""
    brackets, folder = f"[{extras}]" if extras else "", "/research" if package == RESEARCH else ""
    if (IMPORT_ROOT / "pyproject.toml").is_file():
        source_tree = "." if Path.cwd() == IMPORT_ROOT else str(IMPORT_ROOT)
        return f"pip install '{source_tree}{folder}{brackets}'"
    checkout_line = f"pip install '.{folder}{brackets}'   (in a checkout of Mallorn)"
    try:
        metadata = Distribution.from_name("mallorn").read_text("direct_url.json")
    except PackageNotFoundError:
        return checkout_line
    if not metadata:  # it came from an index
        return f"pip install '{package}{brackets}'"
    origin = json.loads(metadata)  # where pip installed this package from (PEP 610)
    source = str(origin["url"])
    if "vcs_info" in origin:
        source = f"{origin['vcs_info']['vcs']}+{source}@{origin['vcs_info']['commit_id']}"
        source += "#subdirectory=research" if folder else ""
    elif source.startswith("file://") and not Path(source.removeprefix("file://")).exists():
        return checkout_line
    elif folder and "dir_info" not in origin:
        return f"pip install '{package}{brackets}'   (a wheel that lies beside Mallorn's)"
    else:
        source += folder
    return f"pip install '{package}{brackets} @ {source}'"


def pip_upgrade_command() -> str:
    """Return the command that updates the checkout this Mallorn was installed from."""
    is_checkout = (IMPORT_ROOT / ".git").exists()
    return f"git -C {IMPORT_ROOT} pull" if is_checkout else "git pull   (in a checkout of Mallorn)"


def import_optional_module(module: str, what_for: str, extra: str, package: str = "mallorn") -> Any:
    """Import a module. Raises MissingPackage with the pip command if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        message = f"{what_for} needs {module}, which is not installed"
        raise missing_package(message, extra, package=package) from None
