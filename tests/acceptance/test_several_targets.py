"""One `mallorn tune` for two targets, on virtual devices of a running service."""

import json
from pathlib import Path

from mallorn.core.targets import parse_target
from mallorn.core.values.manifest import MANIFEST, read_manifest
from tests.fixtures.command_line import mallorn
from tests.fixtures.service import Service, trials

TARGETS = '{"kind":"llvm","mcpu":"x86-64","num-cores":1}', '{"kind":"llvm","mcpu":"x86-64-v3","num-cores":1}'
TRIALS = 4


def test_each_target_is_tuned_and_its_schedules_lie_in_its_own_directory(
    service: Service, networks: Path, tmp_path: Path
) -> None:
    named = [word for target in TARGETS for word in ("--target", target)]
    budget = "--trials", str(TRIALS), "--option", "measurer=simulated", "--option", "policy=round-robin"
    words = "tune", str(networks / "dense.onnx"), *named, *budget, "--out", "won", "--json"
    result = mallorn(*words, cwd=tmp_path, MALLORN_URL=service.url)
    assert result.returncode == 0, result.stderr
    jobs = json.loads(result.stdout)
    assert [job["target_name"] for job in jobs] == ["x86-64-simulated", "x86-64-v3-simulated"]
    for job in jobs:
        manifest = read_manifest(tmp_path / job["directory"] / MANIFEST)
        assert manifest.job == job["id"]
        assert parse_target(manifest.target) == parse_target(job["target"])
        assert len(trials(service.client, service.client.job(job["id"]))) == TRIALS
