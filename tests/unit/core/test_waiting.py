"""The words of a job without a device, and the command below them."""

from pathlib import Path

from mallorn.core.device_wait_hint import (
    ServiceAddress,
    describe_changed_device,
    describe_pause,
    describe_waiting,
    find_device_command,
)
from mallorn.core.settings import Settings, default_data_dir
from mallorn.core.states import Cause

PRIVATE = ServiceAddress("10.0.0.2:9190")
TARGET = '{"kind":"cuda"}'
THERE = f"mallorn device --target '{TARGET}' --tracker 10.0.0.2:9190 --host ITS_ADDRESS"


def test_the_command_is_whole_where_others_reach_the_tracker() -> None:
    assert describe_waiting(TARGET, PRIVATE) == f"waits for a device for {TARGET}\n{THERE}"


def test_a_tracker_that_only_this_machine_reaches_is_opened_first() -> None:
    command = describe_waiting(TARGET, ServiceAddress("127.0.0.1:41234", " --data /d")).partition("\n")[2]
    assert command.startswith("mallorn up --data /d --tracker THIS_MACHINE:9190")
    assert f"mallorn device --target '{TARGET}' --tracker THIS_MACHINE:9190" in command
    assert "127.0.0.1" not in command


def test_only_who_waits_for_another_machine_is_told_at_once_what_to_type() -> None:
    refused = describe_waiting(TARGET, PRIVATE, "it has no cuda device")
    assert find_device_command(refused, Cause.NOT_HERE) == f"next: {THERE}"
    assert find_device_command(describe_waiting(TARGET, PRIVATE), Cause.NO_DEVICE) == ""
    assert find_device_command("the budget is spent\nmallorn watch", Cause.OTHER) == ""


def test_who_waits_for_a_machine_to_be_as_it_was_is_told_at_once_what_to_do() -> None:
    words = describe_changed_device("j1", "a with TVM 1 and 2 threads", "a+battery with TVM 1 and 2 threads")
    assert "taken on a with TVM 1 and 2 threads; the device is a+battery" in words.partition("\n")[0]
    told = find_device_command(words, Cause.UNLIKE)
    assert told.startswith("next: bring back")
    assert "mallorn resume j1" in told


def test_a_paused_job_keeps_the_reason_and_names_the_way_on() -> None:
    what, command = describe_pause("j1", TARGET, PRIVATE, 600.0, "it has no cuda device").split("\n")
    assert what == (
        f"waited 10 minutes for a device for {TARGET}: this machine cannot run it, it has no cuda device"
    )
    assert command == f"{THERE}   (then: mallorn resume j1)"


def test_the_data_directory_is_named_unless_it_is_the_usual_one(tmp_path: Path) -> None:
    assert ServiceAddress.of(Settings(data_dir=tmp_path)).data == f" --data {tmp_path}"
    assert ServiceAddress.of(Settings(data_dir=default_data_dir())).data == ""
