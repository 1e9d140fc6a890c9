"""What a coordinator that was killed left of an upload goes; what another one still receives stays."""

import os
import time
from pathlib import Path

from services.coordinator.web.store import LONGEST_UPLOAD_SEC, Store


def test_uploads_that_nobody_ends_are_swept_and_those_under_way_stay(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.sweep()  # before the first upload there is no folder
    with store.upload(1000) as under_way:
        under_way.write(b"a model")
        models = tmp_path / "models"
        left, model = models / ".incoming-left", models / ("0" * 64)
        for file in (left, model):
            file.touch()
            long_ago = time.time() - LONGEST_UPLOAD_SEC - 60
            os.utime(file, (long_ago, long_ago))
        store.sweep()
        assert not left.exists()
        under_way.close()
        under_way.keep()
    assert len(list(models.iterdir())) == 2
