"""`mallorn keys`: a key is printed once, alone on stdout, and the first one is made on the host."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from db.repositories.api_keys import holds_keys
from mallorn.core.address_checks import check_binding
from mallorn.core.errors import InvalidRequest
from tests.fixtures.answers import data
from tests.fixtures.coordinator import Coordinator, OwnedRows

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
Type = Callable[..., Result]


@pytest.fixture
def mallorn(coordinator: Coordinator) -> Type:
    environment = {
        "MALLORN_URL": coordinator.url,
        "MALLORN_DATABASE_URL": coordinator.database.url,
        "COLUMNS": "200",
    }

    def run(*words: str, key: str | None = None) -> Result:
        given = ["--api-key", key] if key else []
        command = words if words[:1] in (("owners",), ("jobs",)) else ("keys", *words)
        return CliRunner(env=environment).invoke(app, [*command, *given])

    return run


def test_with_none_yet_the_way_to_the_first_is_told(mallorn: Type) -> None:
    result = mallorn()
    assert (result.exit_code, result.stdout) == (0, "")
    assert "mallorn keys create" in result.stderr


def test_the_first_one_is_made_on_the_host(mallorn: Type) -> None:
    made = mallorn("create", "ada", "--scope", "admin", "--here")
    key = made.stdout.strip()
    assert key.startswith("mln_")
    assert "not shown again" in made.stderr
    refused = mallorn()
    assert refused.exit_code == 1
    assert "MALLORN_API_KEY" in refused.stderr
    assert data(mallorn("--json", key=key))[0]["owner"] == "ada"


def test_an_admin_makes_keys_for_others(mallorn: Type) -> None:
    admin = mallorn("create", "ada", "--scope", "admin", "--here").stdout.strip()
    his = data(mallorn("create", "ci", "--owner", "bob", "--days", "90", "--json", key=admin))
    assert (his["owner"], his["scopes"]) == ("bob", ["read", "submit"])
    row = next(line for line in mallorn(key=admin).stdout.splitlines() if his["id"] in line)
    assert "good for" in row
    assert "never" in row
    refused = mallorn("create", "more", key=his["key"])
    assert refused.exit_code == 1
    assert "admin" in refused.stderr


def test_a_rotated_key_replaces_the_old_and_a_revoked_one_says_so(mallorn: Type) -> None:
    first = data(mallorn("create", "ada", "--scope", "admin", "--here", "--json"))
    second = mallorn("rotate", first["id"], key=first["key"]).stdout.strip()
    assert mallorn(key=first["key"]).exit_code == 1
    other = data(mallorn("create", "ci", "--json", key=second))
    unasked = mallorn("revoke", other["id"], key=second)
    assert unasked.exit_code == 1
    assert f"mallorn keys revoke {other['id']} --yes" in unasked.stderr
    assert mallorn("revoke", other["id"], "--yes", key=second).exit_code == 0
    assert "revoked" in mallorn(key=second).stdout
    assert mallorn("revoke", "00000000", "--yes", key=second).exit_code == 1


def test_a_rotation_with_grace_leaves_the_old_secret_a_while(mallorn: Type) -> None:
    first = data(mallorn("create", "ada", "--scope", "admin", "--here", "--json"))
    second = mallorn("rotate", first["id"], "--grace", "10", key=first["key"]).stdout.strip()
    assert mallorn(key=first["key"]).exit_code == mallorn(key=second).exit_code == 0


def test_an_owner_who_leaves_is_put_out_by_one_command(mallorn: Type) -> None:
    admin = mallorn("create", "root", "--scope", "admin", "--here").stdout.strip()
    hers = mallorn("create", "ada", "--here").stdout.strip()
    unasked = mallorn("owners", "put-out", "ada", key=admin)
    assert unasked.exit_code == 1
    assert "mallorn owners put-out ada --yes" in unasked.stderr
    assert mallorn("owners", "put-out", "ada", "--yes", key=admin).exit_code == 0
    assert "was revoked" in mallorn(key=hers).stderr
    rows = mallorn("owners", key=admin).stdout.splitlines()
    assert any(line.startswith("ada") and "20" in line for line in rows), rows
    assert mallorn("create", "ada", "--here").exit_code == 1, "not before she is let in"
    assert mallorn("owners", "let-in", "ada", "--here").exit_code == 0
    assert mallorn("create", "ada", "--here").exit_code == 0
    assert mallorn("owners", "sign-out", "ada", key=admin).exit_code == 0
    erased = mallorn("owners", "erase", "ada", "--yes", "--here")
    assert "from now on erased-" in erased.stderr
    assert "ada" not in mallorn(key=admin).stdout


def test_an_admin_lists_everybodys_jobs(mallorn: Type, coordinator: Coordinator) -> None:
    admin = mallorn("create", "root", "--scope", "admin", "--here").stdout.strip()
    job_id = OwnedRows(coordinator.database, "ada").job_id
    row = next(
        line for line in mallorn("jobs", "--all-owners", key=admin).stdout.splitlines() if job_id in line
    )
    assert row.startswith("ada")
    assert job_id not in mallorn("jobs", key=admin).stdout


def test_a_database_with_a_key_may_be_served_to_others(
    mallorn: Type, coordinator: Coordinator, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="no API key") as caught:
        check_binding("0.0.0.0", holds_keys(coordinator.database.url))
    assert "mallorn keys create" in caught.value.hint
    mallorn("create", "ada", "--here")
    check_binding("0.0.0.0", holds_keys(coordinator.database.url))
    assert not holds_keys(f"sqlite:///{tmp_path}/nowhere/mallorn.db")
