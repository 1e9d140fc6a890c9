"""`mallorn up` lets jobs name any class where nobody but this machine's user comes in."""

from pathlib import Path
from typing import Any

import pytest

from db.migrate import upgrade
from db.repositories.api_keys import ApiKeys
from db.session import Database
from mallorn.core.api_keys import Scope
from mallorn.core.settings import Settings
from stack.data_directory import DataDir
from stack.stack_parts import StackLayout, environment


def allowed(folder: Path, host: str = "127.0.0.1", **known: Any) -> str:
    layout = StackLayout(DataDir(folder), host, 8000, "127.0.0.1:9190", 1)
    return environment(layout, Settings(data_dir=folder, **known))["MALLORN_PLUGINS"]


@pytest.mark.parametrize(
    ("host", "known", "listed"),
    [
        ("127.0.0.1", {}, "*"),
        ("127.0.0.1", {"plugins": ["mine:Mine", "more:*"]}, "mine:Mine,more:*"),
        ("127.0.0.1", {"api_keys": {"ada": "0" * 64}}, ""),
        ("127.0.0.1", {"oidc_issuer": "https://id.example"}, ""),
        ("10.0.0.1", {}, ""),
    ],
)
def test_any_class_goes_on_loopback_without_keys(
    tmp_path: Path, host: str, known: dict[str, Any], listed: str
) -> None:
    assert allowed(tmp_path, host, **known) == listed


def test_a_key_in_the_database_ends_it(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'mallorn.db'}")
    upgrade(database.url)
    with database.transaction() as session:
        ApiKeys(session).create("ada", "test", [Scope.SUBMIT])
    database.dispose()
    assert allowed(tmp_path) == ""
