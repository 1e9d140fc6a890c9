"""A device that lies among honest ones changes no winner, and is named."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.trial import Trial
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.finish.choose_winner import ContestEntry, find_deviating_devices
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult

SKETCH = Sketch("s", "[]", ())
TRUE_US = (10.0, 11.0, 30.0)  # of three candidates
Lie = Callable[[int, float], float]  # of a candidate and its time
LIES: dict[str, Lie] = {
    "slow": lambda _at, us: 3 * us,
    "fast": lambda _at, us: us / 3,
    "far too fast": lambda _at, us: us / 100,
    "slow for the best": lambda at, us: 100 * us if at == 0 else us,
    "fast for the worst": lambda at, us: us / 100 if at == 2 else us,
    "turned round": lambda at, _us: TRUE_US[2 - at],
}


def told(at: int, device: str, us: float | None) -> MeasureResult:
    candidate = Candidate("s", (at,))
    endpoint = Endpoint(device, device, "c", 2, "0")
    if us is None:
        return MeasureResult(at, Trial(candidate, Outcome.RUN_ERROR, error="nonsense"), endpoint)
    return MeasureResult(at, Trial(candidate, Outcome.OK, run_us=(us, us * 1.02)), endpoint)


def contest(liar: Lie | None, devices: tuple[str, ...] = ("a", "b", "c")) -> list[ContestEntry]:
    """Every candidate on every device, of which the first may lie."""
    entries = []
    for at, us in enumerate(TRUE_US):
        results = [told(at, device, us) for device in devices]
        if liar is not None:
            results[0] = told(at, devices[0], liar(at, us))
        entries.append(ContestEntry(MeasureInput(at, Candidate("s", (at,)), SKETCH), tuple(results)))
    return entries


def order(entries: list[ContestEntry]) -> list[int]:
    valid = [entry for entry in entries if entry.failure is None]
    return [entry.slot.slot for entry in sorted(valid, key=ContestEntry.sort_key)]


def test_honest_devices_are_no_odd_ones() -> None:
    assert order(contest(None)) == [0, 1, 2]
    assert find_deviating_devices(contest(None)) == []


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_one_of_three_changes_no_winner(lie: Lie) -> None:
    assert order(contest(lie)) == [0, 1, 2]


@pytest.mark.parametrize("lie", ["slow", "fast", "far too fast"])
def test_who_lies_of_most_candidates_is_named(lie: str) -> None:
    assert find_deviating_devices(contest(LIES[lie])) == ["a"]


def test_what_fails_on_one_of_three_is_overruled_and_that_one_named() -> None:
    broken = [
        replace(entry, results=(told(entry.slot.slot, "a", None), *entry.results[1:]))
        for entry in contest(None)
    ]
    assert order(broken) == [0, 1, 2]
    assert find_deviating_devices(broken) == ["a"]


def test_what_fails_on_two_of_three_has_failed() -> None:
    (first, *_others) = contest(None)
    failed = replace(first, results=(told(0, "a", None), told(0, "b", None), first.results[2]))
    assert failed.failure is not None


@pytest.mark.parametrize("devices", [("a",), ("a", "b")])
def test_two_devices_name_nobody_and_forgive_nothing(devices: tuple[str, ...]) -> None:
    entries = contest(LIES["slow"], devices)
    assert find_deviating_devices(entries) == []
    assert replace(entries[0], results=(told(0, "a", None), *entries[0].results[1:])).failure is not None


def passes(*times: tuple[float, float]) -> ContestEntry:
    """A candidate by its passes: of each its time and which share of it was disturbed."""
    one = told(0, "a", 1.0)
    results = tuple(
        replace(one, trial=Trial(one.trial.candidate, Outcome.OK, run_us=(us,), disturbed=share))
        for us, share in times
    )
    return ContestEntry(MeasureInput(0, one.trial.candidate, SKETCH), results)


def test_passes_that_were_disturbed_do_not_count_beside_one_that_was_not() -> None:
    trial = passes((30.0, 0.6), (10.0, 0.0), (20.0, 0.5)).merge_into_trial(None)
    assert (trial.time_us, trial.run_us) == (10.0, (10.0,))


def test_what_was_disturbed_in_every_pass_is_a_bound() -> None:
    trial = passes((30.0, 0.6), (20.0, 0.4)).merge_into_trial(None)
    assert trial.is_bound
    assert (trial.time_us, trial.latency_us, trial.disturbed) == (None, 25.0, 0.5)


def test_a_device_that_is_busy_is_no_odd_one() -> None:
    def busied(result: MeasureResult) -> MeasureResult:
        return replace(result, trial=replace(result.trial, run_us=(90.0,), latency_us=90.0, disturbed=0.8))

    busy = [replace(each, results=(busied(each.results[0]), *each.results[1:])) for each in contest(None)]
    assert order(busy) == [0, 1, 2]
    assert find_deviating_devices(busy) == []
