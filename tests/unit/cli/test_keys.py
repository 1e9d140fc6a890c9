"""`mallorn keys`: a key is printed once, alone on stdout, and the first one is made on the host."""

from pathlib import Path

import pytest
from typer.testing import Result

from mallorn.core.address_checks import check_binding
from mallorn.core.errors import ExitCode, InvalidRequest
from mallorn.db.repositories.access_control import has_api_keys
from tests.fixtures.answers import data, mallorn, refused
from tests.fixtures.coordinator import Coordinator, OwnedRows


@pytest.fixture(autouse=True)
def on_the_host(named_coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORN_DATABASE_URL", named_coordinator.database.url)


def keys(*words: str, key: str | None = None) -> Result:
    """Type a command about keys, with a key."""
    given = ["--api-key", key] if key else []
    command = words if words[:1] in (("owners",), ("jobs",)) else ("keys", *words)
    return mallorn(*command, *given)


def test_with_none_yet_the_way_to_the_first_is_told() -> None:
    result = keys()
    assert (result.exit_code, result.stdout) == (0, "")
    assert "mallorn keys create" in result.stderr


def test_the_first_one_is_made_on_the_host() -> None:
    made = keys("create", "ada", "--scope", "admin", "--here")
    key = made.stdout.strip()
    assert key.startswith("mln_")
    assert "not shown again" in made.stderr
    refused(keys(), "MALLORN_API_KEY")
    assert data(keys("--json", key=key))[0]["owner"] == "ada"


def test_an_admin_makes_keys_for_others() -> None:
    admin = keys("create", "ada", "--scope", "admin", "--here").stdout.strip()
    his = data(keys("create", "ci", "--owner", "bob", "--days", "90", "--json", key=admin))
    assert (his["owner"], his["scopes"]) == ("bob", ["read", "submit"])
    row = next(line for line in keys(key=admin).stdout.splitlines() if his["id"] in line)
    assert "good for" in row
    assert "never" in row
    refused(keys("create", "more", key=his["key"]), "admin")


def test_a_rotated_key_replaces_the_old_and_a_revoked_one_says_so() -> None:
    first = data(keys("create", "ada", "--scope", "admin", "--here", "--json"))
    second = keys("rotate", first["id"], key=first["key"]).stdout.strip()
    assert keys(key=first["key"]).exit_code == ExitCode.KEY_NEEDED
    other = data(keys("create", "ci", "--json", key=second))
    refused(keys("revoke", other["id"], key=second), f"mallorn keys revoke {other['id']} --yes")
    assert keys("revoke", other["id"], "--yes", key=second).exit_code == 0
    assert "revoked" in keys(key=second).stdout
    assert keys("revoke", "00000000", "--yes", key=second).exit_code == ExitCode.NOT_FOUND


def test_a_rotation_with_grace_leaves_the_old_secret_a_while() -> None:
    first = data(keys("create", "ada", "--scope", "admin", "--here", "--json"))
    second = keys("rotate", first["id"], "--grace", "10", key=first["key"]).stdout.strip()
    assert keys(key=first["key"]).exit_code == keys(key=second).exit_code == 0


def test_an_owner_who_leaves_is_put_out_by_one_command() -> None:
    admin = keys("create", "root", "--scope", "admin", "--here").stdout.strip()
    hers = keys("create", "grace", "--here").stdout.strip()
    refused(keys("owners", "ban", "grace", key=admin), "mallorn owners ban grace --yes")
    assert keys("owners", "ban", "grace", "--yes", key=admin).exit_code == 0
    assert "was revoked" in keys(key=hers).stderr
    rows = keys("owners", key=admin).stdout.splitlines()
    assert any(line.startswith("grace") and "20" in line for line in rows), rows
    assert keys("create", "grace", "--here").exit_code == ExitCode.CONFLICT, "not before she is let in"
    assert keys("owners", "readmit", "grace", "--here").exit_code == 0
    assert keys("create", "grace", "--here").exit_code == 0
    assert keys("owners", "sign-out", "grace", key=admin).exit_code == 0
    erased = keys("owners", "erase", "grace", "--yes", "--here")
    assert "from now on erased-" in erased.stderr
    assert "grace" not in keys(key=admin).stdout


def test_an_admin_lists_everybodys_jobs(coordinator: Coordinator) -> None:
    admin = keys("create", "root", "--scope", "admin", "--here").stdout.strip()
    job_id = OwnedRows(coordinator.database, "ada").job_id
    row = next(line for line in keys("jobs", "--all-owners", key=admin).stdout.splitlines() if job_id in line)
    assert row.startswith("ada")
    assert job_id not in keys("jobs", key=admin).stdout


def test_a_database_with_a_key_may_be_served_to_others(coordinator: Coordinator, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no API key") as caught:
        check_binding("0.0.0.0", has_api_keys(coordinator.database.url))
    assert "mallorn keys create" in caught.value.hint
    keys("create", "ada", "--here")
    check_binding("0.0.0.0", has_api_keys(coordinator.database.url))
    assert not has_api_keys(f"sqlite:///{tmp_path}/nowhere/mallorn.db")
