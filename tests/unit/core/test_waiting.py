"""The words of a job without a device, and the command below them."""

from pathlib import Path

from mallorn.core.device_wait_hint import (
    ServiceAddress,
    describe_changed_device,
    describe_pause,
    describe_waiting,
)
from mallorn.core.settings import Settings, default_data_dir
from tests.fixtures.kept import Kept

PRIVATE = ServiceAddress("10.0.0.2:9190")
TARGET = '{"kind":"cuda"}'
REFUSED = describe_waiting(TARGET, PRIVATE, "it has no cuda device")
LIKE, NOW = "a with TVM 1 and 2 threads", "a+battery with TVM 1 and 2 threads"
# What a job waits for, the command that helps and the cause, by the state: tests/kept/waiting.txt.
WAITING = {
    "others reach the tracker": describe_waiting(TARGET, PRIVATE),
    "only this machine reaches the tracker": describe_waiting(
        TARGET, ServiceAddress("127.0.0.1:41234", " --data /d")
    ),
    "this machine cannot run it": REFUSED,
    "it paused meanwhile": describe_pause("j1", REFUSED, 600.0),
    "the machine has changed": describe_changed_device(LIKE, NOW),
}


def test_what_a_job_without_a_device_waits_for(kept: Kept) -> None:
    texts = {state: f"{at.waiting_because}\n{at.hint}\n{at.cause}" for state, at in WAITING.items()}
    kept("waiting", texts)


def test_the_data_directory_is_named_unless_it_is_the_usual_one(tmp_path: Path) -> None:
    assert ServiceAddress.of(Settings(data_dir=tmp_path)).data == f" --data {tmp_path}"
    assert ServiceAddress.of(Settings(data_dir=default_data_dir())).data == ""
