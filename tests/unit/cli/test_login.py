"""`mallorn login`: address and key are kept for later commands, and only the user can read them."""

import re
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import mallorn as package
from mallorn.cli import login as command
from mallorn.client.logins import Login, logins_file, read_logins, write_logins
from mallorn.core.api_keys import ALL_SCOPES, hash_secret
from mallorn.core.errors import ExitCode
from mallorn.db.repositories.access_control import ApiKeys
from tests.fixtures.answers import Shell, data, mallorn, refused
from tests.fixtures.coordinator import Coordinator, Start
from tests.fixtures.issuer import CLIENT, SECRET, Issuer
from tests.fixtures.kept import Kept


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def key(coordinator: Coordinator) -> str:
    with coordinator.database.transaction() as session:
        return ApiKeys(session).create("ada", "laptop", ALL_SCOPES).key


def test_later_commands_use_the_kept_service_and_its_key(coordinator: Coordinator, key: str) -> None:
    assert mallorn("login", coordinator.url, "--api-key", key).exit_code == 0
    assert [row["name"] for row in data(mallorn("keys", "--json"))] == ["laptop"]
    with package.Client() as client:
        assert client.connection.url == coordinator.url
        assert [row.name for row in client.api_keys()] == ["laptop"]


def test_the_file_is_the_users_alone(coordinator: Coordinator, key: str) -> None:
    mallorn("login", coordinator.url, "--api-key", key)
    assert stat.S_IMODE(logins_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(logins_file().parent.stat().st_mode) == 0o700


def test_a_login_is_taken_over_by_name_and_forgotten(
    coordinator: Coordinator, key: str, shell: Shell, kept: Kept
) -> None:
    shell.names |= {"URL": coordinator.url, "KEY": key}
    shell("a wrong key is not kept", "login URL --api-key mln_1_wrong")
    assert not logins_file().exists()
    shell("there is no provider and no terminal", "login URL")
    shell("a key in the command is taken with a warning", "login URL --api-key KEY --name team")
    write_logins("lab", {**read_logins().services, "lab": Login(url="http://127.0.0.1:9")})
    shell("the service that is current does not answer", "jobs")
    shell("another is chosen", "login team", "jobs", "login", "login attic")
    shell("it is forgotten", "logout", "logout")
    assert key not in logins_file().read_text()
    assert read_logins().current == ""
    kept("login", shell.texts)


def test_a_key_that_was_typed_is_not_revoked_by_a_logout(coordinator: Coordinator, key: str) -> None:
    mallorn("login", coordinator.url, "--api-key", key)
    mallorn("logout")
    assert mallorn("keys", "--url", coordinator.url, "--api-key", key).exit_code == 0


def test_the_environment_and_a_data_directory_come_first(
    coordinator: Coordinator, key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_logins("gone", {"gone": Login(url="http://127.0.0.1:9", api_key="mln_of_another")})
    assert mallorn("jobs", "--data", tmp_path / "none").exit_code == 0
    monkeypatch.setenv("MALLORN_URL", coordinator.url)
    monkeypatch.setenv("MALLORN_API_KEY", key)
    assert mallorn("jobs").exit_code == 0


def test_a_kept_key_goes_to_its_own_service_only(coordinator: Coordinator, key: str) -> None:
    write_logins("other", {"other": Login(url="http://127.0.0.1:9", api_key=key)})
    result = mallorn("jobs", "--url", coordinator.url)
    assert result.exit_code == ExitCode.KEY_NEEDED
    assert "next:  mallorn login URL" in result.stderr


def test_a_service_that_asks_for_no_key_is_kept_without_one(coordinator: Coordinator) -> None:
    assert mallorn("login", coordinator.url).exit_code == 0
    assert read_logins().services[urlsplit(coordinator.url).netloc] == Login(url=coordinator.url)


def test_on_a_terminal_the_key_is_asked_for(
    coordinator: Coordinator, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "can_ask_user", lambda: True)
    result = mallorn("login", coordinator.url, input=f"{key}\n")
    assert result.exit_code == 0, result.stderr
    assert key not in result.output
    assert mallorn("keys").exit_code == 0


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    logins_file().parent.mkdir(parents=True)
    logins_file().write_text('{"services": 7}')
    refused(mallorn("jobs"), str(logins_file()))


@pytest.fixture
def allowing(start: Start, issuer: Issuer) -> Coordinator:
    known = {"oidc_issuer": issuer.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
    return start(**known, oidc_allowed=["@example.org"])


class Browser:
    """Follows the redirects, as a user who has signed in at the provider, and presses the page's button."""

    def __init__(self) -> None:
        self.http = httpx.Client(follow_redirects=True, verify=False)
        self.consent = ""
        self.last = ""
        self.threads: list[threading.Thread] = []

    def open(self, address: str) -> None:
        self.threads.append(threading.Thread(target=self.go, args=(address,)))
        self.threads[-1].start()

    def close(self) -> None:
        for thread in self.threads:
            thread.join()
        self.http.close()

    def go(self, address: str) -> None:
        page = self.http.get(address)
        self.consent = page.text
        (action,), (code,) = (re.findall(f'{name}="([^"]+)"', page.text) for name in ("action", "value"))
        self.last = self.http.get(action, params={"code": code}).text


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    browser = Browser()
    monkeypatch.setattr(command.webbrowser, "open", browser.open)
    yield browser
    browser.close()


def test_a_sign_in_in_the_browser_brings_a_key_named_after_user_and_host(
    allowing: Coordinator, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(command.socket, "gethostname", lambda: "rack.7")
    result = mallorn("login", allowing.url)
    assert result.exit_code == 0, result.stderr
    (row,) = data(mallorn("keys", "--json"))
    assert (row["owner"], row["name"], row["scopes"]) == ("ada@example.org", "ada-rack-7", ["read", "submit"])
    assert row["expires_at"] - row["created_at"] == pytest.approx(90 * 24 * 3600)
    assert "The command line of ada-rack-7 asks for a key" in browser.consent
    assert "ada@example.org" in browser.consent
    (login,) = read_logins().services.values()
    assert login.api_key not in browser.consent + browser.last + result.output


def test_a_logout_revokes_the_key_that_the_sign_in_brought(allowing: Coordinator, browser: Browser) -> None:
    mallorn("login", allowing.url)
    (login,) = read_logins().services.values()
    assert mallorn("logout").exit_code == 0
    refused(mallorn("jobs", "--url", allowing.url, "--api-key", login.api_key), "was revoked")


def test_a_second_sign_in_revokes_the_first_ones_key(allowing: Coordinator, browser: Browser) -> None:
    mallorn("login", allowing.url)
    mallorn("login", allowing.url)
    assert sorted(row["revoked_at"] is None for row in data(mallorn("keys", "--json"))) == [False, True]


def test_who_does_not_sign_in_waits_no_longer_than_the_limit(
    allowing: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.webbrowser, "open", lambda _address: False)
    monkeypatch.setattr(command, "BROWSER_SEC", 0)
    result = mallorn("login", allowing.url)
    assert result.exit_code == ExitCode.TIMED_OUT
    assert "--api-key -" in result.stderr


def code_for(coordinator: Coordinator, verifier: str) -> str:
    """The code on the page on which a signed-in user confirms."""
    query = {"port": "1999", "challenge": hash_secret(verifier), "name": "x"}
    there = httpx.get(coordinator.http.get("/session/oidc", params=query).headers["Location"], verify=False)
    page = coordinator.http.get(there.headers["Location"])
    (code,) = re.findall(r'value="([^"]+)"', page.text)
    return str(code)


def test_a_code_is_worth_a_key_once_and_only_with_its_secret(allowing: Coordinator) -> None:
    exchange = {"code": code_for(allowing, "the secret"), "verifier": "another", "name": "x"}
    assert allowing.http.post("/session/oidc/key", json=exchange).status_code == 401
    exchange["verifier"] = "the secret"
    assert allowing.http.post("/session/oidc/key", json=exchange).status_code == 201
    assert allowing.http.post("/session/oidc/key", json=exchange).status_code == 401


def test_of_requests_that_bring_one_code_at_once_one_gets_a_key(allowing: Coordinator) -> None:
    exchange = {"code": code_for(allowing, "the secret"), "verifier": "the secret", "name": "x"}
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda _: allowing.http.post("/session/oidc/key", json=exchange), range(8))
    assert sorted(answer.status_code for answer in answers) == [201] + [401] * 7


def test_a_code_and_the_secret_are_in_no_address(allowing: Coordinator) -> None:
    exchange = {"code": code_for(allowing, "the secret"), "verifier": "the secret", "name": "x"}
    answer = allowing.http.post("/session/oidc/key", params=exchange)
    assert answer.status_code == 422, "an older `mallorn login` sends them so"
    assert "in the request's body" in answer.json()["detail"]
    assert "install its version of mallorn" in answer.json()["hint"]
    exchange["name"] = "x" * 3000
    assert allowing.http.post("/session/oidc/key", json=exchange).status_code == 413


def test_a_sign_in_for_the_command_line_signs_no_browser_in(allowing: Coordinator) -> None:
    code = code_for(allowing, "the secret")
    assert allowing.http.get("/jobs").status_code == 401
    name = f"mallorn_session_{urlsplit(allowing.url).port}"
    assert httpx.get(f"{allowing.url}/api/v1/jobs", cookies={name: code}).status_code == 401


def test_a_cookie_that_another_port_set_sends_the_code_nowhere_else(allowing: Coordinator) -> None:
    port, digest = urlsplit(allowing.url).port, "0" * 64
    for asked in (f"80@evil.example.{digest}.x", f"1999/..{digest}.x", f"1999.{digest}", ""):
        cookies = {f"mallorn_oidc_{port}": f"s.n.v.{asked}"}
        answer = httpx.get(f"{allowing.url}/api/v1/session/oidc/callback?state=s&code=c", cookies=cookies)
        assert answer.status_code == 401
        assert "started in another browser" in answer.json()["detail"]


def test_a_logout_says_that_a_key_could_not_be_revoked(allowing: Coordinator, browser: Browser) -> None:
    mallorn("login", allowing.url)
    (login,) = read_logins().services.values()
    write_logins("gone", {"gone": login.model_copy(update={"url": "http://127.0.0.1:9"})})
    result = mallorn("logout")
    assert result.exit_code == 0
    assert f"the key {login.key_id} is not revoked and stays valid" in result.stderr
    assert f"mallorn keys revoke {login.key_id} --url http://127.0.0.1:9" in " ".join(result.stderr.split())


def test_a_key_is_read_from_standard_input(coordinator: Coordinator, key: str) -> None:
    result = mallorn("login", coordinator.url, "--api-key", "-", input=f"{key}\n")
    assert result.exit_code == 0, result.stderr
    assert "list of processes" not in result.stderr
    assert mallorn("keys").exit_code == 0


def test_a_key_of_the_environment_brings_no_warning(
    coordinator: Coordinator, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLORN_API_KEY", key)
    assert "list of processes" not in " ".join(mallorn("login", coordinator.url).stderr.split())
