"""Commands that install extras from where this Mallorn came: it is on no package index."""

import json
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

from mallorn.core.errors import MissingPackage as MissingPackage

_ROOT = Path(__file__).resolve().parents[2]


def install_line(extras: str) -> str:
    """Return the pip command that installs extras such as `server,worker`."""
    if (_ROOT / "pyproject.toml").is_file():
        source_tree = "." if Path.cwd() == _ROOT else str(_ROOT)
        return f"pip install '{source_tree}[{extras}]'"
    source = _installed_from()
    if source:
        return f"pip install 'mallorn[{extras}] @ {source}'"
    return f"pip install '.[{extras}]'   (in a checkout of Mallorn)"


def upgrade_line() -> str:
    """Return the command that updates the checkout this Mallorn was installed from."""
    return f"git -C {_ROOT} pull" if (_ROOT / ".git").exists() else "git pull   (in a checkout of Mallorn)"


def _installed_from() -> str:
    """Return the URL from which pip installed this package (PEP 610); empty if unknown."""
    try:
        metadata = Distribution.from_name("mallorn").read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    if not metadata:
        return ""
    origin = json.loads(metadata)
    url = str(origin["url"])
    if "vcs_info" in origin:
        return f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    exists = not url.startswith("file://") or Path(url.removeprefix("file://")).exists()
    return url if exists else ""


def need(module: str, what_for: str, extra: str) -> Any:
    """Import a module. Raises MissingPackage, with the command that installs its extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingPackage(
            f"{what_for} needs {module}, which is not installed", hint=install_line(extra)
        ) from None
