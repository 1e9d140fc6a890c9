"""The API's own description: current, complete, and kept by the implementation."""

import json
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.settings import Settings
from mallorn.services.coordinator.app import create_app

SNAPSHOT = Path(__file__).parents[2] / "services" / "openapi.json"
UPDATE = "python -m tests.contract.write_openapi services/openapi.json"


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))).openapi()


def operations(schema: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_snapshot_is_current(schema: dict[str, Any]) -> None:
    assert json.loads(SNAPSHOT.read_text()) == schema, f"the API changed; if it should: {UPDATE}"


def test_every_operation_says_what_it_does_and_how_it_fails(schema: dict[str, Any]) -> None:
    for method, path, operation in operations(schema):
        assert operation["description"].endswith("."), (method, path)
        assert operation["tags"], (method, path)
        failures = {status for status in operation["responses"] if not status.startswith(("2", "3"))}
        assert failures or path == "/healthz", (method, path)
        for status in failures:
            shown = operation["responses"][status]["content"]["application/json"]["schema"]
            assert shown == {"$ref": "#/components/schemas/ErrorBody"}, (method, path, status)
