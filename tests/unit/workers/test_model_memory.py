"""A process for a whole model may use as much address space as its weights need, however large they are."""

from pathlib import Path
from typing import Any

import pytest

from mallorn.core.settings import Settings
from mallorn.workers.process.worker_runtime import COPIES, Runtime


class MadeUpGraphs:
    """What it was made with."""

    def __init__(self, **given: Any) -> None:
        self.memory_bytes = given["memory_bytes"]

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
