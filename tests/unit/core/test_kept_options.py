"""Options that any version stored are read by each: what it knows of them, and what it does not."""

from typing import Any

import pytest
from pydantic import ValidationError

from mallorn.core.errors import UnknownName
from mallorn.core.job_options import EvaluatorOptions, JobOptions, KeptOptions
from mallorn.core.values.job import JobStatus
from mallorn.core.version import VERSION


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ({}, JobOptions()),
        ({"search": "ga", "of_tomorrow": {"a": 1}}, JobOptions(search="ga")),
        (
            {"evaluator": {"number": 5, "of_tomorrow": 1}},
            JobOptions(evaluator=EvaluatorOptions(number=5)),
        ),
    ],
)
def test_who_looks_reads_what_is_known_and_passes_over_options_of_another_version(
    stored: dict[str, Any], read: JobOptions
) -> None:
    assert KeptOptions.model_validate(stored).model_dump() == read.model_dump()


@pytest.mark.parametrize("option", ["contention", "wait_for_quiet", "private"])
@pytest.mark.parametrize(
    ("value", "meaning"), [("on", True), ("off", False), (True, True), (False, False), ("true", True)]
)
def test_a_boolean_is_read_from_the_words_of_earlier_versions_and_written_as_a_boolean(
    option: str, value: str | bool, meaning: bool
) -> None:
    kept = JobStatus.model_validate({"id": "j", "state": "tuning", "options": {option: value}})
    kept.options.check_all_readable()
    assert kept.sent_options() == {option: meaning}
    assert JobOptions.model_validate({option: value}).model_dump(mode="json")[option] is meaning


def test_an_empty_cache_before_each_run_is_a_word_of_three() -> None:
    with pytest.raises(ValidationError):
        JobOptions.model_validate({"evaluator": {"flush_l2": True}})
    assert JobOptions.model_validate({"evaluator": {"flush_l2": "on"}}).evaluator.flush_l2 == "on"


@pytest.mark.parametrize(
    ("stored", "unknown"),
    [
        ({"secret": "on", "search": "ga"}, "secret"),
        ({"evaluator": {"number": 5, "of_tomorrow": 1}}, "evaluator.of_tomorrow"),
        (
            {"evaluator": {"number": 10**6, "of_tomorrow": 1}, "b": 1, "a": None},
            "a, b, evaluator.of_tomorrow",
        ),
    ],
)
def test_who_does_not_know_an_option_does_not_work_for_the_job(stored: dict[str, Any], unknown: str) -> None:
    kept = JobStatus.model_validate({"id": "j", "state": "tuning", "options": stored}).options
    with pytest.raises(
        UnknownName, match=f"version {VERSION} does not know these options of this job: {unknown};"
    ):
        kept.check_all_readable()


def test_options_that_an_earlier_version_had_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mallorn.core.job_options.RETIRED", frozenset({"of_yesterday"}))
    KeptOptions.model_validate({"of_yesterday": 1, "search": "ga"}).check_all_readable()


@pytest.mark.parametrize(
    ("stored", "strange"),
    [
        ({"contention": "sometimes"}, "contention"),
        ({"round_size": 10_000, "search": "ga"}, "round_size"),
        ({"evaluator": {"number": 10**6, "repeat": 2}}, "evaluator"),
        ({"dynamic": {"x": [9, 1], "y": [1, 2]}}, "dynamic"),
        ({"only": ["", "conv*"]}, "only"),
        ({"evaluator": "by tomorrow's means"}, "evaluator"),
    ],
)
def test_a_value_of_another_version_can_be_looked_at_and_is_not_worked_by(
    stored: dict[str, Any], strange: str
) -> None:
    kept = JobStatus.model_validate({"id": "j", "state": "tuning", "options": stored}).options
    with pytest.raises(UnknownName, match=f"cannot read the job's {strange};"):
        kept.check_all_readable()


def test_reading_changes_nothing_of_what_was_stored() -> None:
    stored = {"evaluator": {"number": 10**6}, "contention": "sometimes"}
    KeptOptions.model_validate(stored)
    assert stored == {"evaluator": {"number": 10**6}, "contention": "sometimes"}


@pytest.mark.parametrize("nonsense", [None, 3, ["search"]])
def test_what_are_no_options_at_all_are_refused(nonsense: Any) -> None:
    with pytest.raises(ValidationError):
        KeptOptions.model_validate(nonsense)
