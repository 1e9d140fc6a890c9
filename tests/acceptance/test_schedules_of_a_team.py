"""`mallorn retune` and `mallorn bench JOB` on a service of their own: what a team types after a tuning."""

import json
from pathlib import Path

from mallorn.core.values.manifest import RECORDS
from tests.fixtures.command_line import mallorn
from zoo import MODELS


def test_only_the_missing_schedule_is_tuned_and_the_job_is_timed_again(tmp_path: Path) -> None:
    def typed(*words: str) -> str:
        result = mallorn(*words, "--json", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        return result.stdout

    (tmp_path / "mlp.onnx").write_bytes(MODELS["mlp"](0).SerializeToString())
    typed("tune", "mlp.onnx", "--trials", "8", "--data", "before", "--out", "tuned")
    records = (tmp_path / "tuned" / RECORDS).read_text().splitlines()
    (tmp_path / "tuned" / RECORDS).write_text("".join(f"{line}\n" for line in records[:-1]))

    # Another data directory: what `tuned` still holds is imported, and its schedules stay.
    job = json.loads(typed("retune", "tuned", "mlp.onnx", "--trials", "8", "--data", "after"))
    assert job["progress"]["trials"] == 8
    assert len(job["options"]["only"]) == 1
    retuned = [json.loads(line)[1][0] for line in (tmp_path / "tuned" / RECORDS).read_text().splitlines()]
    assert len(retuned) == len(records)
    assert all(json.loads(line)[1][0] in retuned for line in records[:-1])
    assert json.loads(typed("retune", "tuned", "mlp.onnx", "--data", "after")) == {"missing": []}

    report = json.loads(typed("bench", job["id"], "--data", "after"))
    assert report["latency_us"]["tuned"]["median"] > 0
    assert not report["skipped_steps"]
