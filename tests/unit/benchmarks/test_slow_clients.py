"""The benchmark of slow clients, with a few of each kind: another client is always answered."""

import math
import resource
from pathlib import Path

import pytest

from benchmarks.load.__main__ import Server
from benchmarks.slow_clients import KINDS, measure, slowdown
from mallorn.db.migrate import upgrade


@pytest.mark.long
def test_each_kind_of_slow_client_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.slow_clients.SETTLE_SEC", 0.5)
    url = f"sqlite:///{tmp_path / 'mallorn.db'}"
    upgrade(url)
    with Server(tmp_path, url) as server:
        rows = [measure(server, kind, 20, 0.2) for kind in KINDS]
    assert [row["kind"] for row in rows] == list(KINDS)
    for row in rows:
        for when in ("before", "arriving", "during", "after"):
            assert row[when]["requests"] > 0, (row["kind"], when)
        assert row["open_files"] < resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert math.isfinite(slowdown(rows))
