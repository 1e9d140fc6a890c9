"""Every operation that the API describes keeps its description, whatever it is asked and in whatever order.

schemathesis draws requests, right and wrong ones, from the description alone, follows ids from one answer
into the next request, and checks all that it knows how to check.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.contract.test_openapi import SNAPSHOT
from tests.fixtures.command_line import TIMEOUT_SEC, clean_environment
from tests.fixtures.coordinator import Coordinator, Start

KEY: Final = "the only key"
EXAMPLES: Final = 15  # an operation and phase
TARGET: Final = '{"kind":"llvm","num-cores":2}'
ID: Final = "$response.body#/id"
# A cursor is a text that the API gave before, and a target one of TVM's: what is drawn is neither.
CONFIG: Final = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", "303", "401", "403", "404", "409", "422"]
"""
EXCLUDED: Final = "devices|jobs|models|records|schedules(/lookup)?|costmodels|audit|uploads/.*|jobs/.*/rounds"
STRICT: Final = f"""
[[operations]]
exclude-path-regex = "^/api/v1/({EXCLUDED})$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "303", "401", "403", "404", "409"]
"""


def described() -> dict[str, Any]:
    """The API's description, with what follows: an upload's id makes a job, and a job's all else."""
    document: dict[str, Any] = json.loads(SNAPSHOT.read_text())
    paths = document["paths"]

    def link(method: str, path: str, **given: Any) -> dict[str, Any]:
        return {"operationId": paths[path][method]["operationId"], **given}

    def all_with(name: str) -> dict[str, Any]:
        routes = [(verb, path) for path in paths for verb in paths[path] if f"{{{name}}}" in path]
        return {f"{verb} {path}": link(verb, path, parameters={name: ID}) for verb, path in routes}

    submit = link("post", "/api/v1/jobs", requestBody={"model_id": ID, "target": TARGET})
    paths["/api/v1/models"]["put"]["responses"]["200"]["links"] = {"submit": submit, **all_with("model_id")}
    paths["/api/v1/jobs"]["post"]["responses"]["201"]["links"] = all_with("job_id")
    paths["/api/v1/keys"]["post"]["responses"]["201"]["links"] = all_with("key_id")
    return document


def asked_everything(
    coordinator: Coordinator, document: dict[str, Any], folder: Path, *words: str
) -> "subprocess.CompletedProcess[str]":
    """A run of all phases and checks; jobs that nobody works on would stream events for ever."""
    coordinator.parts.stopping.set()
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "schemathesis.toml").write_text(CONFIG + STRICT)
    options = {"checks": "all", "max-examples": EXAMPLES, "seed": 1, "generation-database": "none"}
    given = [f"--{name}={value}" for name, value in options.items()]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "run",
            "openapi.json",
            f"--url={coordinator.url}",
            *given,
            *words,
        ],
        env=clean_environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SEC,
    )


# What is drawn and followed from answer to answer is asked with a key in `make test`, below.
@pytest.mark.parametrize(
    "phases", ["examples,coverage", pytest.param("fuzzing,stateful", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_without_keys_everything_is_as_described(
    coordinator: Coordinator, tmp_path: Path, phases: str
) -> None:
    document = described()
    for operations in document["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)  # on loopback without keys nobody is asked for one
    # The first key would shut the door on all that follows.
    words = "--exclude-name=POST /api/v1/keys", f"--phases={phases}"
    ran = asked_everything(coordinator, document, tmp_path, *words)
    assert ran.returncode == 0, ran.stdout[-20_000:]


def test_with_keys_everything_is_as_described(start: Start, tmp_path: Path) -> None:
    coordinator = start(api_keys={"ada": hashlib.sha256(KEY.encode()).hexdigest()})
    ran = asked_everything(coordinator, described(), tmp_path, f"--header=Authorization: Bearer {KEY}")
    assert ran.returncode == 0, ran.stdout[-20_000:]
