"""The words of a job without a device, and the command below them."""

from pathlib import Path

from mallorn.core.device_wait_hint import (
    ServiceAddress,
    describe_changed_device,
    describe_pause,
    describe_waiting,
)
from mallorn.core.settings import Settings, default_data_dir
from mallorn.core.states import Cause, Waiting

PRIVATE = ServiceAddress("10.0.0.2:9190")
TARGET = '{"kind":"cuda"}'
THERE = f"mallorn device --target '{TARGET}' --tracker 10.0.0.2:9190 --host ITS_ADDRESS"


def test_the_command_is_whole_where_others_reach_the_tracker() -> None:
    assert describe_waiting(TARGET, PRIVATE) == Waiting(
        f"waits for a device for {TARGET}", THERE, Cause.NO_DEVICE
    )


def test_a_tracker_that_only_this_machine_reaches_is_opened_first() -> None:
    command = describe_waiting(TARGET, ServiceAddress("127.0.0.1:41234", " --data /d")).hint
    assert command.startswith("mallorn up --data /d --tracker THIS_MACHINE:9190")
    assert f"mallorn device --target '{TARGET}' --tracker THIS_MACHINE:9190" in command
    assert "127.0.0.1" not in command


def test_a_job_that_waits_for_another_machine_says_why_this_one_does_not_do() -> None:
    refused = describe_waiting(TARGET, PRIVATE, "it has no cuda device")
    assert refused.waiting_because.endswith(": this machine cannot run it, it has no cuda device")
    assert (refused.hint, refused.cause) == (THERE, Cause.NOT_HERE)


def test_who_waits_for_a_machine_to_be_as_it_was_is_told_at_once_what_to_do() -> None:
    waiting = describe_changed_device("a with TVM 1 and 2 threads", "a+battery with TVM 1 and 2 threads")
    assert "taken on a with TVM 1 and 2 threads; the device is a+battery" in waiting.waiting_because
    assert waiting.cause is Cause.UNLIKE
    assert waiting.hint.startswith("bring back")


def test_a_paused_job_keeps_the_reason_and_names_the_way_on() -> None:
    waits = describe_waiting(TARGET, PRIVATE, "it has no cuda device")
    waiting = describe_pause("j1", waits, 600.0)
    assert waiting.waiting_because == f"{waits.waiting_because}; paused after 10 minutes"
    assert waiting.cause is Cause.NOT_HERE
    assert waiting.hint == f"{THERE}   (then: mallorn resume j1)"


def test_the_data_directory_is_named_unless_it_is_the_usual_one(tmp_path: Path) -> None:
    assert ServiceAddress.of(Settings(data_dir=tmp_path)).data == f" --data {tmp_path}"
    assert ServiceAddress.of(Settings(data_dir=default_data_dir())).data == ""
