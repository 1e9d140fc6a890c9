"""Virtual devices: a target of their own, and a recording that workers find."""

import pytest

from mallorn.core.errors import InvalidRequest, InvalidTarget
from mallorn.core.job_options import DEVICE, ON_DEVICES, JobOptions
from mallorn.core.registry import VIRTUAL_DEVICES, list_names
from mallorn.core.settings import Settings
from mallorn.core.targets import parse_target
from mallorn.core.virtual_devices import (
    add_virtual_device,
    check_files,
    recording_place,
    remove_virtual_device,
)

CPU = parse_target({"kind": "llvm", "mcpu": "znver5", "num-cores": 2})


def test_every_measurer_is_a_virtual_device_or_has_hardware() -> None:
    assert set(list_names("measurer")) == {*ON_DEVICES, *VIRTUAL_DEVICES}


@pytest.mark.parametrize("measurer", sorted(VIRTUAL_DEVICES))
def test_a_job_that_no_device_measures_has_a_target_of_its_own(measurer: str) -> None:
    target = add_virtual_device(CPU, measurer)
    assert target.key != CPU.key
    assert target.virtual_device == measurer
    assert remove_virtual_device(target) == CPU
    assert add_virtual_device(target, measurer) == target


@pytest.mark.parametrize("measurer", [DEVICE, "my_package:Mine"])
def test_all_others_have_the_one_that_was_asked_for(measurer: str) -> None:
    assert add_virtual_device(CPU, measurer) is CPU
    assert CPU.virtual_device == ""


def test_no_other_measurer_gets_the_target_of_a_virtual_device() -> None:
    replayed = add_virtual_device(CPU, "replay")
    with pytest.raises(InvalidTarget) as refused:
        add_virtual_device(replayed, DEVICE)
    assert refused.value.hint == "--option measurer=replay"
    with pytest.raises(InvalidTarget, match="names 'replay'"):
        add_virtual_device(replayed, "simulated")


def replay(recording: str) -> JobOptions:
    return JobOptions(measurer="replay", recording=recording)


@pytest.mark.parametrize(
    ("recordings", "name", "place"),
    [
        ("/data", "a.parquet", "/data/a.parquet"),
        ("/data/", "znver5/a b.parquet", "/data/znver5/a b.parquet"),
        ("s3://bucket/all", "a.parquet", "s3://bucket/all/a.parquet"),
        ("*", "/home/me/a.parquet", "/home/me/a.parquet"),
    ],
)
def test_a_recording_lies_below_what_the_operator_allows(recordings: str, name: str, place: str) -> None:
    assert recording_place(replay(name), recordings) == place


@pytest.mark.parametrize(
    ("options", "recordings", "words", "hint"),
    [
        (JobOptions(measurer="replay"), "/data", "needs the option `recording`", "recording=NAME"),
        (JobOptions(recording="/a.parquet"), "*", "needs the measurer replay", "measurer=replay"),
        (replay("a.parquet"), "*", "whose path must be absolute", "recording=$PWD/a.parquet"),
        (replay("a.parquet"), "", "has not set MALLORN_RECORDINGS", "MALLORN_RECORDINGS=DIRECTORY"),
        (replay("/data/a.parquet"), "", "has not set MALLORN_RECORDINGS", "MALLORN_RECORDINGS=DIRECTORY"),
        (replay("/data/a.parquet"), "/data", "not an absolute one", "recording=a.parquet"),
        (replay("s3://theirs/a.parquet"), "*", "relative to MALLORN_RECORDINGS", "recording=NAME"),
        (replay("zip::a.parquet"), "/data", "relative to MALLORN_RECORDINGS", "recording=NAME"),
        (replay("b/../../a.parquet"), "/data", "without `..`", "recording=NAME"),
        (replay("a\0.parquet"), "/data", "without `..`", "recording=NAME"),
        (replay("a" * 401), "/data", "without `..`", "recording=NAME"),
    ],
)
def test_any_other_is_refused_with_what_to_type(
    options: JobOptions, recordings: str, words: str, hint: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        recording_place(options, recordings)
    assert hint in refused.value.hint


def test_a_service_with_api_keys_ignores_a_setting_that_allows_any_file() -> None:
    settings = Settings(recordings="*")
    check_files(replay("/home/me/a.parquet"), settings, asks_keys=False)
    with pytest.raises(InvalidRequest, match="has not set MALLORN_RECORDINGS"):
        check_files(replay("/home/me/a.parquet"), settings, asks_keys=True)
