"""A device of another host: its jobs end with a whole model that was checked and timed there."""

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from mallorn import Client
from mallorn.core.host_id import host_id
from tests.fixtures.command_line import typed
from tests.fixtures.namespaces import OtherHost, why_not
from tests.fixtures.parts_by_hand import started_by_hand
from tests.fixtures.service import JOB_SEC

pytestmark = pytest.mark.long
PARTS = (("serve",), ("control",), ("tracker",), ("worker",))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The coordinator of a service whose only device is elsewhere."""
    if reason := why_not():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("elsewhere")
    with OtherHost(directory) as far:
        device = far.command(typed("device", "--target", "local", "--name", "far", "--host", far.there))
        with started_by_hand(
            directory,
            [*(typed(*part) for part in PARTS), device],
            Client,
            tracker_host=OtherHost.here,
            MALLORN_DATABASE_URL=f"sqlite:///{directory}/mallorn.db",
            MALLORN_RPC_KEY=token_hex(32),
        ) as parts:
            yield parts.url


def test_a_job_whose_device_is_not_the_workers_host_ends_verified(url: str, networks: Path) -> None:
    with Client(url) as client:
        (device,) = client.devices()
        assert device.host_id != host_id()
        job = client.submit(networks / "tiny.onnx", target=device.target, trials=12)
        job.wait(JOB_SEC)
        report = job.body["report"]
        assert report["schedule_count"] > 0, "so few trials may leave a task without a schedule"
        assert set(report["latency_us"]) == {"tuned", "untuned"}
        assert report["error_vs_untuned"] < 1e-3
        assert {entry["step"] for entry in report["skipped_steps"]} <= {
            "time onnxruntime beside it",
            "load onnxruntime",
        }
