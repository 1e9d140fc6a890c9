"""Keys on the page: the first one shuts the door, each is shown once, and what is revoked opens nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from mallorn.core.api_keys import Scope
from mallorn.db.repositories.access_control import ApiKeys
from mallorn.db.session import Database
from tests.browser.conftest import Open
from tests.browser.looks import keep_picture
from tests.fixtures.issuer import CLIENT, SECRET, issuing

Serve = Callable[..., str]


def new_key(database: Database, owner: str, *scopes: Scope) -> str:
    with database.transaction() as session:
        return ApiKeys(session).create(owner, f"{owner}'s", scopes).key


def sign_in(page: Any, key: str) -> None:
    dialog = page.get_by_role("dialog", name="An API key is needed")
    dialog.get_by_role("textbox", name="API key").fill(key)
    dialog.get_by_role("button", name="Sign in").click()
    dialog.wait_for(state="detached")


@pytest.fixture
def admin(serve: Serve, open_page: Open, quiet_database: Database) -> Any:
    """The page of keys, seen by an admin."""
    key = new_key(quiet_database, "ada", Scope.ADMIN)
    page = open_page(f"{serve()}#/keys")
    sign_in(page, key)
    page.get_by_role("table", name="Keys").or_(page.get_by_role("group", name="Keys")).first.wait_for()
    return page


def test_the_first_key_is_made_here_and_asked_for_at_once(
    serve: Serve, open_page: Open, quiet_database: Database
) -> None:
    page = open_page(f"{serve()}#/keys")
    page.get_by_text("No keys yet").wait_for()
    page.get_by_role("button", name="Make a key").click()
    dialog = page.get_by_role("dialog", name="Make a key")
    dialog.get_by_text("It is the first").wait_for()
    assert dialog.get_by_role("checkbox", name="admin").is_checked()
    dialog.get_by_role("textbox", name="For").fill("me")
    keep_picture(page, "keys-make")
    dialog.get_by_role("button", name="Make it").click()
    made = page.get_by_role("dialog", name="The key me, of local")
    key = made.locator("code").inner_text()
    assert key.startswith("mln_")
    keep_picture(page, "keys-made")
    made.get_by_role("button", name="I have it").click()
    sign_in(page, key)
    page.get_by_text("1 key, 1 of them good").wait_for()
    assert key not in page.content()
    keep_picture(page, "keys")


def test_an_admin_makes_a_key_for_another_owner(admin: Any) -> None:
    admin.get_by_role("button", name="Make a key").click()
    dialog = admin.get_by_role("dialog", name="Make a key")
    dialog.get_by_role("textbox", name="For").fill("ci")
    dialog.get_by_role("textbox", name="Owner").fill("bob")
    dialog.get_by_role("button", name="Make it").click()
    admin.get_by_role("dialog", name="The key ci, of bob").get_by_role("button", name="I have it").click()
    admin.get_by_text("2 keys, 2 of them good").wait_for()
    assert "read, submit" in admin.inner_text("main")


def test_a_revoked_key_signs_its_browsers_out(
    admin: Any, serve: Serve, open_page: Open, quiet_database: Database
) -> None:
    theirs = open_page(f"{serve()}#/jobs")
    sign_in(theirs, new_key(quiet_database, "bob", Scope.READ))
    theirs.get_by_text("No jobs yet").wait_for()
    admin.reload()
    admin.get_by_role("button", name="Revoke bob's").click()
    admin.get_by_role("dialog", name="Revoke it?").get_by_role("button", name="Revoke it").click()
    admin.get_by_text("2 keys, 1 of them good").wait_for()
    theirs.reload()
    theirs.get_by_role("dialog", name="An API key is needed").wait_for()


def test_a_rotated_key_is_shown_once(admin: Any, quiet_database: Database) -> None:
    old = new_key(quiet_database, "bob", Scope.READ)
    admin.reload()
    admin.get_by_role("button", name="Rotate bob's").click()
    admin.get_by_role("dialog", name="Give it another secret?").get_by_role(
        "button", name="Rotate it"
    ).click()
    made = admin.get_by_role("dialog", name="The key bob's, of bob")
    assert made.locator("code").inner_text() not in ("", old)


def test_an_identity_provider_signs_in_as_well(
    serve: Serve, open_page: Open, quiet_database: Database
) -> None:
    with issuing() as issuer:
        page = open_page(
            serve(
                oidc_issuer=issuer.url,
                oidc_client_id=CLIENT,
                oidc_client_secret=SECRET,
                oidc_allowed=["@example.org"],
            )
            + "#/keys"
        )
        dialog = page.get_by_role("dialog", name="An API key is needed")
        dialog.get_by_role("button", name="Sign in with 127.0.0.1").wait_for()
        keep_picture(page, "sign-in")
        dialog.get_by_role("button", name="Sign in with 127.0.0.1").click()
        page.get_by_text("ada@example.org").wait_for()
        page.get_by_text("No jobs yet").wait_for()


def test_a_refusal_of_the_identity_provider_is_told_on_the_page(
    serve: Serve, open_page: Open, quiet_database: Database
) -> None:
    with issuing() as issuer:
        issuer.claims["email_verified"] = False
        page = open_page(
            serve(
                oidc_issuer=issuer.url,
                oidc_client_id=CLIENT,
                oidc_client_secret=SECRET,
                oidc_allowed=["@example.org"],
            )
            + "#/keys"
        )
        dialog = page.get_by_role("dialog", name="An API key is needed")
        dialog.get_by_role("button", name="Sign in with 127.0.0.1").click()
        dialog.get_by_text("has not verified the address ada@example.org").wait_for()
        keep_picture(page, "sign-in-refused")
        issuer.claims["email_verified"] = True
        dialog.get_by_role("button", name="Sign in with 127.0.0.1").click()
        page.get_by_text("No jobs yet").wait_for()


def test_who_is_no_admin_sees_their_own_and_makes_none(
    serve: Serve, open_page: Open, quiet_database: Database
) -> None:
    new_key(quiet_database, "grace", Scope.ADMIN)
    page = open_page(f"{serve()}#/keys")
    sign_in(page, new_key(quiet_database, "bob", Scope.READ, Scope.SUBMIT))
    page.get_by_text("1 key, 1 of them good").wait_for()
    assert page.get_by_role("button", name="Make a key").count() == 0
    assert "grace" not in page.inner_text("main")
