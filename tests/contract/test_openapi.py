"""The API's own description: current, complete, and kept by the implementation."""

import json
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.settings import Settings
from services.coordinator.app import create_app

SNAPSHOT = Path(__file__).parents[2] / "services" / "openapi.json"
UPDATE = "python -m services.coordinator.describe services/openapi.json"


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


def test_the_routes_of_the_design_are_there(schema: dict[str, Any]) -> None:
    found = {f"{method} {path.removeprefix('/api/v1')}" for method, path, _ in operations(schema)}
    assert found == {
        "PUT /models",
        "POST /devices/{name}/withdraw",
        "GET /models",
        "GET /models/{model_id}",
        "DELETE /models/{model_id}",
        "POST /jobs",
        "GET /jobs",
        "GET /jobs/{job_id}",
        "DELETE /jobs/{job_id}",
        "GET /jobs/{job_id}/tasks",
        "GET /jobs/{job_id}/report",
        "GET /jobs/{job_id}/rounds",
        "GET /jobs/{job_id}/events",
        "GET /jobs/{job_id}/schedules",
        "POST /jobs/{job_id}/cancel",
        "POST /jobs/{job_id}/pause",
        "POST /jobs/{job_id}/resume",
        "POST /jobs/{job_id}/archive",
        "POST /jobs/{job_id}/unarchive",
        "GET /options",
        "GET /schedules",
        "GET /schedules/{schedule_id}",
        "GET /records",
        "GET /dataset/stats",
        "GET /costmodels",
        "GET /costmodels/{cost_model_id}",
        "POST /costmodels/{cost_model_id}/activate",
        "GET /devices",
        "GET /workers",
        "GET /fleet/activity",
        "GET /audit",
        "GET /retention",
        "DELETE /jobs/{job_id}/export",
        "GET /keys",
        "POST /keys",
        "DELETE /keys/{key_id}",
        "POST /keys/{key_id}/rotate",
        "GET /owners",
        "POST /owners/{deed}",
        "GET /session",
        "POST /session",
        "DELETE /session",
        "GET /session/oidc",
        "GET /session/oidc/callback",
        "GET /healthz",
        "GET /readyz",
    }
