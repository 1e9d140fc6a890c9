"""`mallorn up` lets jobs name any class and recording where nobody but this machine's user comes in.

Elsewhere it requires the sandbox.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mallorn.cli import run_service_part
from mallorn.core.api_keys import Scope
from mallorn.core.settings import Settings
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.access_control import ApiKeys, needs_api_keys
from mallorn.db.session import Database
from mallorn.stack.data_directory import DataDir
from mallorn.stack.process_specs import StackLayout, environment
from mallorn.workers.sandbox import sandbox_support
from mallorn.workers.sandbox.sandbox_support import NoSandbox, require_sandbox_mode


def told(folder: Path, host: str = "127.0.0.1", **known: Any) -> dict[str, str]:
    layout = StackLayout(DataDir(folder), host, 8000, "127.0.0.1:9190", 1)
    return environment(layout, Settings(data_dir=folder, **known))


def allowed(folder: Path, host: str = "127.0.0.1", **known: Any) -> str:
    return told(folder, host, **known)["MALLORN_PLUGINS"]


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


KEYS = {"api_keys": {"ada": "0" * 64}}


@pytest.mark.parametrize(
    ("known", "recordings", "sandbox"),
    [
        ({}, "*", "best-effort"),
        ({"recordings": "/data", "sandbox": "require"}, "/data", "require"),
        (KEYS, "", "require"),
        ({"oidc_issuer": "https://id.example"}, "", "require"),
        (KEYS | {"recordings": "/data", "sandbox": "best-effort"}, "/data", "best-effort"),
        (KEYS | {"sandbox": "off"}, "", "off"),
    ],
)
def test_where_keys_are_asked_for_no_path_is_read_and_the_sandbox_is_required(
    tmp_path: Path, known: dict[str, Any], recordings: str, sandbox: str
) -> None:
    found = told(tmp_path, **known)
    assert (found["MALLORN_RECORDINGS"], found["MALLORN_SANDBOX"]) == (recordings, sandbox)


def with_a_key(folder: Path) -> None:
    database = Database(f"sqlite:///{folder / 'mallorn.db'}")
    upgrade(database.url)
    with database.transaction() as session:
        ApiKeys(session).create("ada", "test", [Scope.SUBMIT])
    database.dispose()


def test_a_key_in_the_database_ends_it(tmp_path: Path) -> None:
    with_a_key(tmp_path)
    found = told(tmp_path)
    assert (found["MALLORN_PLUGINS"], found["MALLORN_RECORDINGS"]) == ("", "")
    assert found["MALLORN_SANDBOX"] == "require"


def test_a_database_of_an_older_version_may_hold_a_key(tmp_path: Path) -> None:
    with_a_key(tmp_path)
    with closing(sqlite3.connect(tmp_path / "mallorn.db")) as older, older:
        older.execute("UPDATE alembic_version SET version_num = 'older'")
    assert told(tmp_path)["MALLORN_SANDBOX"] == "require"


def test_a_server_that_does_not_answer_may_hold_a_key() -> None:
    assert needs_api_keys(Settings(database_url="postgresql://nobody@127.0.0.1:1/none"))


def test_a_worker_of_a_service_with_keys_does_not_start_without_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_key(tmp_path)
    known = Settings(data_dir=tmp_path)
    monkeypatch.setattr(run_service_part, "settings", lambda: known)
    monkeypatch.setattr(
        sandbox_support, "probe_sandbox_support", lambda mode: require_sandbox_mode("without Landlock", mode)
    )
    with pytest.raises(NoSandbox, match="without Landlock; all of it is required") as refused:
        run_service_part.worker("", "")
    assert "MALLORN_SANDBOX=best-effort" in refused.value.hint
