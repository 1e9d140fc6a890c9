"""What is said of a job, and that it is never said kindlier than its figures are."""

import re
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.format_text import command_in
from mallorn.core.states import JobState
from mallorn.core.values.finish_report import FinishReport, ModelLatency
from mallorn.core.values.job import JobStatus, JobWarning
from mallorn.core.values.verdict import Comparison, Level, Verdict
from mallorn.results.judge_job import judge_job
from mallorn.results.speedup import ALIKE, Speedup, compare_with_onnxruntime, compare_with_rival, format_ratio
from tests.fixtures.kept import Kept

RANK = [Level.POOR, Level.FAIR, Level.GOOD]


MUCH_LEFT = {"current_us": 1000.0, "expected_us": 800.0, "gain": 0.024, "trials": 300}
LIKELY = {"gain": 0.03, "low": 0.002, "high": 0.08, "trials": 1000, "seconds": 340.0, "tasks": ["conv2d_7"]}
LITTLE_LEFT = {"current_us": 1000.0, "expected_us": 1000.0, "gain": 0.003}


def timing(median: float, spread: float = 0.01) -> dict[str, float]:
    return {"median": median, "low": median * (1 - spread), "high": median * (1 + spread)}


def timed(times: float, spread: float = 0.01, rival: str = "onnxruntime") -> dict[str, ModelLatency | None]:
    """The same as values."""
    return FinishReport.model_validate({"latency_us": latencies(times, spread, rival)}).latency_us


def latencies(times: float, spread: float = 0.01, rival: str = "onnxruntime") -> dict[str, Any]:
    """A tuned model that is so many times faster than its rival."""
    return {"tuned": timing(1000.0, spread), rival: timing(1000.0 * times, spread)}


def said(level: Level, summary: str, following: str = "") -> Verdict:
    return Verdict(level=level, summary=summary, next_command=following)


def done(times: float | None = None, spread: float = 0.01, **changes: Any) -> Verdict:
    mode, progress = changes.pop("mode", "search"), {"trials": changes.pop("trials", 8)}
    fields = {"id": "j1", "name": "mlp", "state": JobState.DONE, "progress": progress}
    report = {"outlook": MUCH_LEFT} | changes.pop("report", {})
    if times is not None:
        report = {"latency_us": latencies(times, spread), **report}
    verdict = judge_job(
        JobStatus.model_validate(fields | changes | {"report": report, "options": {"mode": mode}})
    )
    return verdict.model_copy(update={"comparison": None})  # which has a test of its own


def without_trials(gain: dict[str, Any], **changes: Any) -> Verdict:
    return done(1.5, trials=0, report={"outlook": None, "tuning_gain": gain, **changes})


def unmeasured(mode: str, times: float | None = None, **schedules: dict[str, Any]) -> Verdict:
    return done(times, trials=0, mode=mode, report={"unmeasured_schedules": schedules, "outlook": None})


def outlook(times: float, **changes: Any) -> Verdict:
    return done(times, report={"outlook": LITTLE_LEFT | changes})


def test_the_figures_of_a_part_are_called_those_of_a_part_and_are_not_good() -> None:
    outside = [{"operator": "Det", "reason": "TVM has no operator Det", "count": 2}]
    region = {"inputs": ["x"], "outputs": ["y"], "nodes": 7, "outside": outside, "rest": 1}
    whole, part = done(1.5), done(1.5, graph={"region": region})
    assert part.summary == f"of the 7 of 10 nodes that are compiled: {whole.summary}"
    assert (whole.level, part.level) == (Level.GOOD, Level.FAIR)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (1.5, "25 % of onnxruntime's time, so the whole file is about 1.3 times faster"),
        (0.5, "so the provider leaves the whole file to onnxruntime"),
    ],
)
def test_a_whole_file_keeps_the_time_of_its_other_nodes_or_stays_in_onnxruntime(
    times: float, said: str
) -> None:
    region = {"inputs": ["x"], "outputs": ["y"], "nodes": 7, "outside": []}
    assert said in done(times, graph={"region": region}, report={"whole_file_us": 2000.0}).summary


UNCHECKED = {"source": "near", "basis": "carried", "confidence": "likely"}
CHECKED = UNCHECKED | {"is_verified": True}
AT_THE_LIMIT = {"limits": {"flop": 1e9, "peak_gflops": 200.0, "peak_share": 0.92}}
BUSY = {"steady": False, "note": "While candidates were timed, other programs used 1.0 of 2 cores."}
BOUNDS = {"candidates": 16, "upper_bounds": 4, "valid_sec": 1.0, "other_programs": 1.0, "cores": 2}
SKIPPED = [{"step": "timing the whole model", "reason": "no memory", "hint": "free some"}]
# What is told of a job, by what is known of it: tests/kept/verdicts.txt.
VERDICTS = {
    "slower after few trials: poor, and how to go on": done(1 / 1.9),
    "faster, at the machine's limit: done": done(1.4, trials=400, report=AT_THE_LIMIT),
    "more trials pay no more, and slower: none are asked for": outlook(0.5),
    "more trials pay no more, and faster": outlook(1.5),
    "the limit of the tasks counts before that of the machine": done(
        0.5, report={"outlook": LITTLE_LEFT | {"limit_us": 940.0}, "limits": {"peak_share": 0.4}}
    ),
    # The model took 1,000 us: a sum of its tasks that says otherwise is not told in its place.
    "the share of the limit where tasks add up to less": outlook(1.5, current_us=700.0, limit_us=500.0),
    "the share of the limit where tasks were disturbed": outlook(1.5, current_us=4000.0, limit_us=500.0),
    "without evidence no number of trials is made up": done(0.5, report={"outlook": None}),
    "no trials: what they would win and cost": without_trials(LIKELY, limits={"peak_share": 0.9}),
    "a long name of a function is cut": without_trials(LIKELY | {"tasks": ["fused" + 40 * "_sigmoid_tanh"]}),
    "no trials: what nobody knows": without_trials(LIKELY | {"unseen_operators": ["conv2d", "matmul"]}),
    "trials that would win nothing are not asked for": without_trials(LIKELY | {"gain": 0.01, "high": 0.02}),
    "trials that would win little are not asked for": without_trials(LIKELY | {"gain": 0.01, "high": 0.04}),
    "as fast: the whole interval is within three percent": done(1.01, 0.005),
    "not told apart: the interval holds both": done(1.05, 0.03),
    "not told apart, with a ratio under one": done(0.95, 0.1),
    "not told apart, of a wide interval": done(0.3, 0.9),
    "a little faster, in percent": done(1.05, 0.001),
    "a little slower, in percent": done(1 / 1.05, 0.001),
    "many times faster": done(14.2),
    "beside the default build alone no result is good": done(
        report={"latency_us": latencies(30.0, rival="untuned")}
    ),
    "figures of a busy host are to be taken again": done(1.5, report={"conditions": BUSY}),
    "upper bounds wait for a quiet host": done(1.5, report={"conditions": BUSY | {"trials": BOUNDS}}),
    "what the finish did not do, and warnings": done(
        1.5, report={"skipped_steps": SKIPPED}, warnings=[JobWarning(source="search")]
    ),
    "a model that was not timed is not judged": done(report={"latency_us": {}}),
    "what a replay measured is judged by nobody": done(report={"measured_by": "replay"}),
    "what a simulation measured is judged by nobody": done(report={"measured_by": "simulated"}),
    "a measurer of another's is named": done(1.4, report={"measured_by": "mine:Mine"}),
    "a device in another process is a device": done(1.4, report={"measured_by": "detached"}),
    "zero-shot: nobody has looked, and how to look": unmeasured("zero-shot", t=UNCHECKED),
    "one-shot: judged by its time, tuned if that may bring more": unmeasured("one-shot", 1 / 1.9, t=CHECKED),
    "one-shot without a device claims no check": unmeasured("one-shot", t=CHECKED, u=UNCHECKED),
}


def test_the_verdict_on_a_job(kept: Kept) -> None:
    texts = {
        state: f"{verdict.level.value}\n{verdict.summary}\n{verdict.next_command}"
        for state, verdict in VERDICTS.items()
    }
    kept("verdicts", texts)


def bursts(*pairs: tuple[float, float]) -> dict[str, ModelLatency | None]:
    """Bursts of the tuned model and of onnxruntime in turn; the medians' own intervals are wide."""
    columns = dict(
        zip(("tuned", "onnxruntime"), (list(each) for each in zip(*pairs, strict=True)), strict=True)
    )
    return {
        name: ModelLatency(median=median(us), low=min(us), high=max(us), bursts=us)
        for name, us in columns.items()
    }


def test_a_slow_spell_that_hits_both_engines_does_not_blur_their_ratio() -> None:
    calm, slow = (100.0, 110.0), (180.0, 198.0)
    found = compare_with_rival(bursts(calm, slow, calm, slow, calm, slow))
    assert found is not None
    assert found.full_text == "1.1 times faster than onnxruntime (ratio 1.10, 1.10 to 1.10)"


def test_wide_intervals_that_overlap_are_not_told_apart() -> None:
    found = compare_with_rival(
        bursts((100.0, 90.0), (100.0, 126.0), (100.0, 112.0), (100.0, 95.0), (100.0, 130.0))
    )
    assert found is not None
    assert found.full_text == "1.12 (0.90 to 1.30) times the speed of onnxruntime (not told apart)"
    assert found.level is Level.FAIR


@given(st.floats(0.05, 20.0), st.floats(1.0, 1.5), st.floats(1.0, 1.5))
def test_as_fast_as_is_said_only_where_the_whole_interval_lies_within_three_percent(
    times: float, below: float, above: float
) -> None:
    found = Speedup("onnxruntime", times, times / below, times * above)
    within = found.low >= 1 / ALIKE and found.high <= ALIKE
    certain = within or found.low > 1 or found.high < 1
    assert ("as fast as" in found.full_text) == within
    assert ("not told apart" in found.full_text) == (not certain)
    assert ("than onnxruntime" in found.full_text) == (certain and not within)
    assert f"{format_ratio(times)}" in found.full_text
    assert f"{format_ratio(found.low)} to {format_ratio(found.high)}" in found.full_text
    assert not re.search(r"(?<![\d.])1(\.0)? times (faster|slower)", found.full_text)


@given(st.floats(0.9, 1.1), st.floats(1.0, ALIKE))
def test_an_interval_of_three_percent_always_tells(times: float, width: float) -> None:
    found = Speedup("onnxruntime", times, times, times * width)
    assert found.precise
    assert found.is_equally_fast or found.is_significant or width > ALIKE * (1 - 1e-9)


def test_a_failed_job_tells_its_cause_and_the_command_that_helps() -> None:
    def failed(because: str, hint: str = "") -> Verdict:
        return judge_job(JobStatus(id="j1", state=JobState.FAILED, ended_because=because, hint=hint))

    assert failed("no room", "df -h   (then: mallorn resume JOB)").next_command == "df -h"
    assert failed("free dimension n", "give it with --input-shape x:1,3") == said(
        Level.POOR, "failed: free dimension n; give it with --input-shape x:1,3", "mallorn show j1"
    )
    assert failed("").summary == "failed: no reason was recorded"


@pytest.mark.parametrize("state", [state for state in JobState if not state.is_final])
def test_a_job_that_goes_on_is_not_judged_yet(state: JobState) -> None:
    verdict = judge_job(JobStatus(id="j1", state=state))
    assert verdict.level is Level.NONE
    assert verdict.summary
    assert verdict.next_command == f"mallorn {'resume' if state is JobState.PAUSED else 'watch'} j1"


def test_what_a_job_waits_for_names_the_command() -> None:
    because, hint = "waits for a device for llvm", "start one with `mallorn device --target llvm`"
    verdict = judge_job(JobStatus(id="j1", state=JobState.TUNING, waiting_because=because, hint=hint))
    assert (verdict.summary, verdict.next_command) == (because, "mallorn device --target llvm")


@pytest.mark.parametrize(
    ("text", "command"),
    [("a\nmallorn show j", "mallorn show j"), ("use `mallorn up`", "mallorn up"), ("give a path", "")],
)
def test_a_command_is_found_in_words(text: str, command: str) -> None:
    assert command_in(text) == command


def test_a_column_says_how_it_stands_beside_onnxruntime() -> None:
    told = {times: compare_with_onnxruntime(timed(times)) for times in (0.25, 0.93, 1.4)}
    assert told == {
        0.25: Comparison(level=Level.POOR, text="4.0 times slower"),
        0.93: Comparison(level=Level.FAIR, text="8 % slower"),
        1.4: Comparison(level=Level.GOOD, text="1.4 times faster"),
    }
    assert compare_with_onnxruntime(timed(1.01, spread=0.005)) == Comparison(level=Level.GOOD, text="as fast")
    unsure = Comparison(level=Level.FAIR, text="0.95 to 1.16 times as fast")
    assert compare_with_onnxruntime(timed(1.05, spread=0.05)) == unsure
    assert compare_with_onnxruntime(timed(9.0, rival="untuned")) is None
    assert compare_with_onnxruntime({}) is None
    assert (
        compare_with_rival({"tuned": ModelLatency(median=1.0, low=1.0, high=1.0), "onnxruntime": None})
        is None
    )


TIMES = st.floats(0.01, 100.0)
SPREADS = st.floats(0.0, 0.9)
RIVALS = st.sampled_from(["onnxruntime", "untuned"])
STEADY = st.booleans()
OUTLOOK = st.sampled_from([None, MUCH_LEFT, LITTLE_LEFT])


@given(TIMES, SPREADS, RIVALS, STEADY, OUTLOOK)
def test_never_both_faster_and_slower_and_poor_always_has_a_next_step(
    times: float, spread: float, rival: str, steady: bool, outlook: dict[str, float] | None
) -> None:
    conditions = {"steady": steady, "note": ""}
    verdict = done(
        report={"latency_us": latencies(times, spread, rival), "conditions": conditions, "outlook": outlook}
    )
    said = [
        word in verdict.summary for word in ("faster than", "slower than", "as fast as", "not told apart")
    ]
    assert sum(said) == 1
    assert verdict.next_command or verdict.level is Level.GOOD
    if verdict.level is Level.GOOD:
        assert "slower" not in verdict.summary


@given(TIMES, TIMES, SPREADS, RIVALS, STEADY)
def test_the_level_never_falls_where_the_model_is_faster(
    one: float, other: float, spread: float, rival: str, steady: bool
) -> None:
    slow, fast = (
        done(report={"latency_us": latencies(times, spread, rival), "conditions": {"steady": steady}})
        for times in sorted((one, other))
    )
    assert RANK.index(slow.level) <= RANK.index(fast.level)


@given(st.floats(1.25, 100.0), SPREADS, STEADY, OUTLOOK)
def test_clearly_slower_than_onnxruntime_is_never_better_than_poor(
    slower: float, spread: float, steady: bool, outlook: dict[str, float] | None
) -> None:
    known = {"latency_us": latencies(1 / slower, spread), "conditions": {"steady": steady}}
    assert done(report=known | {"outlook": outlook}).level is Level.POOR


@pytest.mark.parametrize("mode", ["one-shot", "zero-shot"])
@pytest.mark.parametrize("times", [None, 0.5, 1.0, 2.0])
def test_nobody_is_told_to_resume_a_job_that_measures_nothing(mode: str, times: float | None) -> None:
    assert (
        "resume"
        not in done(times, trials=0, mode=mode, report={"unmeasured_schedules": {"t": CHECKED}}).next_command
    )
