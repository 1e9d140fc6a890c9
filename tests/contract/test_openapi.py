"""The API's own description: current, complete, and kept by the implementation."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from mallorn.core.settings import Settings
from mallorn.services.coordinator.app import create_app

SNAPSHOT = Path(__file__).parents[2] / "services" / "openapi.json"
#: Clients are generated from these names: one may be added, and none changed.
OPERATIONS = """
    activate_cost_model archive_job bench_job cancel_job change_job change_owner_access complete_sign_in
    complete_upload
    create_key delete_export delete_job delete_model download_job_library
    download_job_schedules exchange_code find_schedules get_cost_model get_dataset_stats
    get_fleet_activity
    get_job_report get_liveness get_model get_readiness get_schedule list_audit list_cost_models list_devices
    list_jobs list_keys list_models list_options list_owners list_records list_rounds list_schedules
    list_tasks list_workers pause_job redirect_to_provider resume_job revoke_key rotate_key
    show_job show_retention show_session show_upload sign_in sign_out stream_job_events submit_job
    unarchive_job upload_model upload_part withdraw_device
"""
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


def test_operations_keep_their_ids(schema: dict[str, Any]) -> None:
    assert sorted(operation["operationId"] for _, _, operation in operations(schema)) == OPERATIONS.split()


def bodies(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is sent and what comes back, where it is text."""
    answers = [body for status, body in operation["responses"].items() if status.startswith("2")]
    for body in (operation.get("requestBody", {}), *answers):
        for content in body.get("content", {}).values():
            if content["schema"].get("format") != "binary":
                yield content


def test_every_operation_has_examples_that_its_schemas_allow(schema: dict[str, Any]) -> None:
    examined = 0
    for method, path, operation in operations(schema):
        named = [one for one in operation.get("parameters", []) if one["in"] == "path"]
        for described in (*named, *bodies(operation)):
            assert "example" in described, (method, path)
            example = described["example"]
            if str(example).startswith("id: "):
                continue  # the schema is of each event's data
            whole = {**described["schema"], "components": schema["components"]}
            jsonschema_rs.validate(whole, example)
            examined += 1
    assert examined > 60
