"""A device of another host: its jobs end with a whole model that was checked and timed there."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex

import pytest

from mallorn import Client, MallornError
from mallorn.core.host_id import host_id
from stack.ports import free_port
from stack.valkey import valkey_command
from tests.fixtures.command_line import clean_environment, typed
from tests.fixtures.namespaces import OtherHost, why_not
from tests.fixtures.processes import end
from tests.fixtures.service import JOB_SEC, START_SEC, seldom
from tests.fixtures.waiting import wait_for

pytestmark = pytest.mark.long
PARTS = (("serve",), ("control",), ("control", "--beat"), ("tracker",), ("worker",))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The coordinator of a service whose only device is elsewhere."""
    if reason := why_not():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("elsewhere")
    port = free_port()
    tracker_port = free_port(besides=(port,))
    redis_port = free_port(besides=(port, tracker_port))
    env = clean_environment(
        MALLORN_DATABASE_URL=f"sqlite:///{directory}/mallorn.db",
        MALLORN_REDIS_URL=f"redis://127.0.0.1:{redis_port}/0",
        MALLORN_TRACKER=f"{OtherHost.here}:{tracker_port}",
        MALLORN_RPC_KEY=token_hex(32),
        MALLORN_ARTIFACTS=f"file://{directory}/artifacts",
        MALLORN_DATA_DIR=str(directory / "data"),
        MALLORN_PORT=str(port),
    )
    redis = [*valkey_command(directory / "redis.sock"), "--port", str(redis_port), "--bind", "127.0.0.1"]
    subprocess.run(typed("migrate"), env=env, check=True)
    with ExitStack() as stack:
        far = stack.enter_context(OtherHost(directory))
        device = far.command(typed("device", "--target", "local", "--name", "far", "--host", far.there))
        for number, command in enumerate([redis, *(typed(*part) for part in PARTS), device]):
            log = stack.enter_context((directory / f"{number}.log").open("wb"))
            stack.callback(end, subprocess.Popen(command, env=env, stdout=log, stderr=log))
        address = f"http://127.0.0.1:{port}"
        wait_for(seldom(lambda: _ready(address)), "all parts", START_SEC)
        yield address


def _ready(address: str) -> bool:
    with Client(address) as client:
        try:
            return bool(client.workers()) and any(device.online for device in client.devices())
        except MallornError:
            return False


def test_a_job_whose_device_is_not_the_workers_host_ends_verified(url: str, networks: Path) -> None:
    with Client(url) as client:
        (device,) = client.devices()
        assert device.host_id != host_id()
        job = client.tune(networks / "tiny.onnx", target=device.target, trials=12)
        job.wait(JOB_SEC)
        report = job.body["report"]
        assert report["found"] > 0, "so few trials may leave a task without a schedule"
        assert set(report["latency_us"]) == {"tuned", "untuned"}
        assert report["error_vs_untuned"] < 1e-3
        assert {entry["step"] for entry in report["not_done"]} <= {
            "time onnxruntime beside it",
            "load onnxruntime",
        }
