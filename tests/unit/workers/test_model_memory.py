"""A process for a whole model has as much address space as its weights need, and one folder to write to."""

from pathlib import Path
from typing import Any

import pytest

from mallorn.core.settings import Settings
from mallorn.workers.process.worker_runtime import COPIES, Runtime
from mallorn.workers.sandbox.landlock import READ


class MadeUpGraphs:
    """What it was made with."""

    def __init__(self, **given: Any) -> None:
        self.memory_bytes = given["memory_bytes"]
        self.others = given["others"]
        self.env = given["env"]

    def start(self) -> None:
        """There is no process."""


@pytest.mark.parametrize("model_bytes", [0, 10, 4 << 30])
def test_a_process_for_a_whole_model_has_room_for_it(
    model_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mallorn.workers.process.worker_runtime.ModelCompiler", MadeUpGraphs)
    config = Settings(database_url=f"sqlite:///{tmp_path}/m.db", child_memory_bytes=1 << 30)
    made: Any = Runtime(config).start_model_compiler(2, model_bytes, tmp_path)
    assert made.memory_bytes == (1 << 30) + COPIES * model_bytes


def test_no_process_of_a_job_writes_what_a_later_job_s_linker_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mallorn.workers.process.worker_runtime.ModelCompiler", MadeUpGraphs)
    config = Settings(database_url=f"sqlite:///{tmp_path}/m.db")
    made: Any = Runtime(config).start_model_compiler(2, 10, tmp_path)
    assert {rights for _, rights in made.others} == {READ}
    assert "ZIG_GLOBAL_CACHE_DIR" not in made.env  # so it is in the process's own folder
