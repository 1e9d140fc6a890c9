"""No secret of the settings is printed, be it of use or not: a canary sits in each, and is looked for."""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from pydantic import SecretStr

from mallorn.cli.main import MallornGroup
from mallorn.core.errors import InvalidRequest
from mallorn.core.log_setup import JsonLines, TextLines
from mallorn.core.redaction import redact
from mallorn.core.settings import SECRETS, URLS, Settings
from mallorn.services.coordinator.app import create_app
from tests.fixtures.answers import mallorn
from tests.fixtures.command_line import clean_environment, typed
from tests.fixtures.coordinator import serving

CANARY: Final = "canary-9f8e7d6c"
WHOLE: Final = {
    "MALLORN_API_KEY": f"mln_1_{CANARY}",
    "MALLORN_RPC_KEY": CANARY * 3,
    "MALLORN_OIDC_CLIENT_SECRET": CANARY,
    "MALLORN_OIDC_ISSUER": "http://127.0.0.1:9",
    "MALLORN_OIDC_ALLOWED": "ada@example.org",
    "MALLORN_DATABASE_URL": f"postgresql://mallorn:{CANARY}@127.0.0.1:9/mallorn",
    "MALLORN_REDIS_URL": f"redis://:{CANARY}@127.0.0.1:9/0",
    "MALLORN_ARTIFACTS": f"s3://key:{CANARY}@bucket/models",
    "MALLORN_URL": "http://127.0.0.1:9",
    "COLUMNS": "200",
}
BROKEN: Final = [
    ("DATABASE_URL", f"postgresql//mallorn:{CANARY}@host/mallorn"),
    ("DATABASE_URL", f"postgresql:mallorn:{CANARY}@host/mallorn"),
    ("DATABASE_URL", f"postgresql://mallorn:{CANARY}@host:{CANARY}@host:port/mallorn"),
    ("DATABASE_URL", f"postgresql://127.0.0.1:9/mallorn?password={CANARY}&nonsense=1"),
    ("DATABASE_URL", f"mallorn:{CANARY}@host/mallorn"),
    ("DATABASE_URL", f"mysql://mallorn:{CANARY}@host/mallorn"),
    ("DATABASE_URL", f"sqlite://mallorn:{CANARY}@host"),
    ("REDIS_URL", f"redis//:{CANARY}@host"),
    ("REDIS_URL", f"redis://:{CANARY}/1@host:6379"),
    ("ARTIFACTS", f"nowhere://key:{CANARY}@bucket"),
    ("ARTIFACTS", f"s3//key:{CANARY}@bucket"),
    ("RPC_KEY", CANARY),
    ("PORT", "none"),
    ("DATA_DIR", "/what?"),
]
PARTS: Final = ("up", "serve", "worker", "control", "tracker", "device")
#: Those that need words of their own to get as far as a setting.
TYPED: Final = {
    **{name: [name] for name in MallornGroup.locations if name not in PARTS},
    **{name: [name, "1"] for name in ("submit", "show", "watch")},
    "tune": ["tune", "1"],
    **{f"jobs {name}": ["jobs", name, "1"] for name in ("tasks", "explain", "pause", "cancel")},
    "jobs rm": ["jobs", "rm", "1", "--yes"],
    "owners audit": ["owners", "audit"],
    "batch": ["batch", "drop", "1"],
}
OF_THE_DATABASE: Final = [
    ["doctor"],
    ["migrate"],
    ["dataset", "stats"],
    ["keys", "create", "ada", "--here"],
    ["owners", "erase", "ada", "--here", "--yes"],
]
#: Parts with whole settings, and those that need it with what cannot be used.
STARTED: Final = [(part, "PORT", "8000") for part in PARTS] + [
    (part, *broken) for part in ("serve", "worker", "control") for broken in (BROKEN[0], BROKEN[3], BROKEN[8])
]
START_SEC: Final = 8.0
Told = Callable[..., str]


@pytest.fixture
def told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Told]:
    """All that a command shows, with these settings instead of whole ones."""

    def run(*words: str, **changes: str) -> str:
        for name, value in (WHOLE | {"MALLORN_DATA_DIR": str(tmp_path)} | changes).items():
            monkeypatch.setenv(name, value)
        result = mallorn(*words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            sys.excepthook(type(result.exception), result.exception, result.exception.__traceback__)
        return result.output + "".join(capsys.readouterr())

    return run


def test_every_secret_setting_is_kept() -> None:
    secret = {name for name, each in Settings.model_fields.items() if "SecretStr" in str(each.annotation)}
    assert secret == set(SECRETS)
    urls = {name for name, each in Settings.model_fields.items() if "url" in (each.description or "").lower()}
    assert set(URLS) <= set(Settings.model_fields)
    assert urls <= {*URLS, "redis_url"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name == "check" else name for name in TYPED]
)
def test_no_command_prints_a_secret(name: str, told: Told) -> None:
    output = told(*TYPED[name])
    assert output
    assert CANARY not in output


@pytest.mark.parametrize(("name", "value"), BROKEN)
def test_what_cannot_be_used_is_not_printed_either(
    name: str, value: str, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `doctor` starts a process for each library; these checks read no setting, and the test above has them.
    for check in ("check_linker", "check_shared_libraries"):
        monkeypatch.setattr(f"mallorn.cli.doctor.{check}", str)
    for words in OF_THE_DATABASE:
        assert CANARY not in told(*words, **{f"MALLORN_{name}": value}), words


def test_a_broken_url_is_still_known_again(told: Told) -> None:
    output = told("migrate", MALLORN_DATABASE_URL=f"postgresql//mallorn:{CANARY}@host/mallorn")
    assert "'postgresql//***@host/mallorn' is not the URL of a database" in output


def test_a_coordinator_tells_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = {name.removeprefix("MALLORN_").lower(): value for name, value in WHOLE.items() if "_" in name}
    known["artifacts"] = str(tmp_path)
    known["redis_url"] = f"redis://:{CANARY}@127.0.0.1:9/0"
    with serving(create_app(Settings(data_dir=tmp_path, **known))) as url:  # type: ignore[arg-type]
        for path in ("/readyz", "/api/v1/session", "/api/v1/session/oidc", "/api/v1/jobs"):
            answer = httpx.get(url + path, headers={"Authorization": f"Bearer mln_1_{CANARY}"})
            assert CANARY not in answer.text + str(answer.headers), path
    assert CANARY not in "".join(capsys.readouterr())


@pytest.mark.parametrize("lines", [TextLines("test"), JsonLines("test")])
def test_a_log_line_and_its_traceback_keep_it(lines: logging.Formatter) -> None:
    Settings(rpc_key=SecretStr(CANARY * 3))
    try:
        raise RuntimeError(f"cannot open postgresql://mallorn:{CANARY}@host/mallorn with {CANARY * 3}")
    except RuntimeError as error:
        record = logging.LogRecord("x", logging.ERROR, "x", 1, "no %s", (str(error),), sys.exc_info())
    line = lines.format(record)
    assert CANARY not in line
    assert "postgresql://***@host/mallorn" in line
    if isinstance(lines, JsonLines):
        assert "Traceback" in json.loads(line)["error"]


def test_an_error_is_made_without_it() -> None:
    Settings(database_url=f"postgresql://mallorn:{CANARY}@host/mallorn")
    error = InvalidRequest(f"{CANARY} does not open it", hint=f"psql postgresql://mallorn:{CANARY}@host")
    assert CANARY not in str(error) + repr(error)
    assert CANARY not in repr(Settings(oidc_client_secret=SecretStr(CANARY)))


def test_what_is_no_secret_is_left() -> None:
    Settings(database_url="postgresql://postgres:postgres@host/postgres")
    for text in (
        "is postgres there? look at redis://127.0.0.1:6379/0",
        "ada@example.org was banned",
        "there is no cost model private-1:operator:matmul/xgboost@9",
    ):
        assert redact(text) == text


@pytest.mark.long
@pytest.mark.parametrize(("words", "name", "value"), STARTED)
def test_no_part_prints_a_secret_while_it_starts(words: str, name: str, value: str, tmp_path: Path) -> None:
    env = clean_environment(**(WHOLE | {"MALLORN_DATA_DIR": str(tmp_path), f"MALLORN_{name}": value}))
    ports = ["--port", "0"] if words in ("up", "serve", "tracker") else []
    command = typed(*words.split(), *ports)
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as part:
        try:
            output, _ = part.communicate(timeout=START_SEC)
        except subprocess.TimeoutExpired:
            part.send_signal(signal.SIGTERM)
            output, _ = part.communicate()
    assert CANARY not in output
