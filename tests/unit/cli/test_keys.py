"""`mallorn keys`: a key is printed once, alone on stdout, and the first one is made on the host."""

from pathlib import Path

import pytest
from typer.testing import Result

from mallorn.core.address_checks import check_binding
from mallorn.core.errors import InvalidRequest
from mallorn.db.repositories.access_control import has_api_keys
from tests.fixtures.answers import Shell, data, mallorn
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.kept import Kept


@pytest.fixture(autouse=True)
def on_the_host(named_coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORN_DATABASE_URL", named_coordinator.database.url)


def keys(*words: str, key: str | None = None) -> Result:
    """Type a command about keys, with a key."""
    given = ["--api-key", key] if key else []
    command = words if words[:1] in (("owners",), ("jobs",)) else ("keys", *words)
    return mallorn(*command, *given)


def test_keys_are_made_rotated_and_revoked(shell: Shell, kept: Kept) -> None:
    shell("none yet", "keys")
    made = keys("create", "ada", "--scope", "admin", "--here")
    key = made.stdout.strip()
    assert key.startswith("mln_")
    assert "not shown again" in made.stderr
    assert data(keys("--json", key=key))[0]["owner"] == "ada"
    his = data(keys("create", "ci", "--owner", "bob", "--days", "90", "--json", key=key))
    assert (his["owner"], his["scopes"]) == ("bob", ["read", "submit"])
    first, _ = data(keys("--json", key=key))[::-1]
    shell.names |= {"ADMIN": key, "HIS": his["key"], "BOBS": his["id"], "ADAS": first["id"]}
    shell("two keys", "keys", "keys --api-key ADMIN")
    shell("who is no admin makes none", "keys create more --api-key HIS")
    second = keys("rotate", first["id"], key=key).stdout.strip()
    shell("rotated", "keys --api-key ADMIN")
    shell.names["SECOND"] = second
    revoke = "keys revoke BOBS --api-key SECOND", "keys revoke BOBS --yes --api-key SECOND"
    shell("revoked", *revoke, "keys --api-key SECOND", "keys revoke 00000000 --yes --api-key SECOND")
    kept("keys", shell.texts)


def test_a_rotation_with_grace_leaves_the_old_secret_a_while() -> None:
    first = data(keys("create", "ada", "--scope", "admin", "--here", "--json"))
    second = keys("rotate", first["id"], "--grace", "10", key=first["key"]).stdout.strip()
    assert keys(key=first["key"]).exit_code == keys(key=second).exit_code == 0


def test_an_owner_who_leaves_is_put_out_by_one_command(shell: Shell, kept: Kept) -> None:
    for name, owner, *scope in (("ADMIN", "root", "--scope", "admin"), ("HERS", "grace")):
        shell.names[name] = key = keys("create", owner, *scope, "--here").stdout.strip()
    shell.names["KEY"] = key.split("_")[1]
    ban = "owners ban grace --api-key ADMIN", "owners ban grace --yes --api-key ADMIN"
    shell("banned", *ban, "keys --api-key HERS", "owners --api-key ADMIN", "keys create grace --here")
    assert keys("owners", "readmit", "grace", "--here").exit_code == 0
    assert keys("create", "grace", "--here").exit_code == 0
    erased = keys("owners", "erase", "grace", "--yes", "--here")
    assert "from now on erased-" in erased.stderr
    assert "grace" not in keys(key=str(shell.names["ADMIN"])).stdout
    kept("banned-owner", shell.texts)


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
