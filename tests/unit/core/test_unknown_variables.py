"""Settings in pods of Kubernetes, and what a misspelt variable is answered with."""

import logging

import pytest

from mallorn.core.log_setup import set_up
from mallorn.core.settings import Settings, unknown_variables

#: Services that a chart of ours has, and such whose names are settings.
SERVICES = ["mallorn", "mallorn-tracker", "mallorn-postgres", "mallorn-port", *(
    f"mallorn-{name.replace('_', '-')}" for name in Settings.model_fields
)]  # fmt: skip


def service_links(service: str, port: int = 8000) -> dict[str, str]:
    """The variables that Kubernetes puts into each pod of the namespace for a Service."""
    name, address = service.upper().replace("-", "_"), "10.0.0.7"
    url = f"tcp://{address}:{port}"
    return {
        f"{name}_SERVICE_HOST": address,
        f"{name}_SERVICE_PORT": str(port),
        f"{name}_SERVICE_PORT_HTTP": str(port),
        f"{name}_PORT": url,
        f"{name}_PORT_{port}_TCP": url,
        f"{name}_PORT_{port}_TCP_PROTO": "tcp",
        f"{name}_PORT_{port}_TCP_PORT": str(port),
        f"{name}_PORT_{port}_TCP_ADDR": address,
    }


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without settings of whoever runs the tests."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"MALLORN_{name.upper()}", raising=False)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_of_kubernetes_changes_no_setting_and_is_no_misspelling(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, links = Settings(), service_links(service)
    for name, value in links.items():
        monkeypatch.setenv(name, value)
    assert Settings() == before
    assert not list(unknown_variables(links))


def test_a_port_that_somebody_set_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORN_PORT", "9000")
    assert Settings().port == 9000


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("MALLORN_DATABSE_URL", "MALLORN_DATABASE_URL"),
        ("MALLORN_QUOTA_JOB", "MALLORN_QUOTA_JOBS"),
        ("MALLORN_HOSTFOLDER", "MALLORN_HOST_FOLDER"),
    ],
)
def test_a_misspelt_variable_is_told_with_the_nearest_name_and_without_its_value(
    name: str, near: str
) -> None:
    (sentence,) = unknown_variables({name: "a secret", "MALLORN_URL": "", "HOME": "/", "MALLORN_CODE": "7"})
    assert sentence.startswith(f"nothing reads {name}; did you mean {near}")
    assert "secret" not in sentence


def test_every_process_of_the_service_logs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MALLORN_LOG_LEVLE", "debug")
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        set_up("worker", Settings())
    finally:
        logging.root.handlers[:], logging.root.level = handlers, level
    assert "did you mean MALLORN_LOG_LEVEL" in capsys.readouterr().err
