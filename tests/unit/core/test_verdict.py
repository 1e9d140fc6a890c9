"""What is said of a job, and that it is never said kindlier than its figures are."""

import re
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.percent_and_command_text import command_in
from mallorn.core.states import JobState
from mallorn.core.values.finish_report import FinishReport, ModelLatency
from mallorn.core.values.job import JobStatus, JobWarning
from mallorn.core.values.verdict import Comparison, Level, Verdict
from mallorn.results.judge_job import judge_job
from mallorn.results.speedup import ALIKE, Speedup, compare_with_onnxruntime, compare_with_rival, format_ratio

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


def test_slower_than_onnxruntime_after_few_trials_is_poor_and_says_how_to_go_on() -> None:
    assert done(1 / 1.9) == said(
        Level.POOR,
        "1.9 times slower than onnxruntime (ratio 0.53, 0.52 to 0.54)"
        " after 8 trials; the next 100 trials would bring 2.4 %",
        "mallorn resume j1 --auto",
    )


def test_faster_at_the_machines_limit_is_done() -> None:
    limits = {"limits": {"flop": 1e9, "peak_gflops": 200.0, "peak_share": 0.92}}
    assert done(1.4, trials=400, report=limits) == said(
        Level.GOOD,
        "1.4 times faster than onnxruntime (ratio 1.40, 1.37 to 1.43)"
        "; 92 % of what this machine computes; done",
    )


def test_where_more_trials_pay_no_more_it_says_so_and_asks_for_none() -> None:
    slower = done(0.5, trials=456, report={"outlook": LITTLE_LEFT})
    assert slower.summary == (
        "2.0 times slower than onnxruntime (ratio 0.50, 0.49 to 0.51)"
        " after 456 trials; the next 100 trials would bring 0.3 %"
    )
    assert slower.next_command == "mallorn profile mlp.onnx --schedules mlp-tuned"
    assert done(1.5, report={"outlook": LITTLE_LEFT}).next_command == ""


def test_the_limit_of_the_tasks_counts_where_it_is_known() -> None:
    near = LITTLE_LEFT | {"limit_us": 940.0}
    slower = done(0.5, report={"outlook": near, "limits": {"peak_share": 0.4}})
    assert slower.summary == (
        "2.0 times slower than onnxruntime (ratio 0.50, 0.49 to 0.51)"
        "; 94 % of what this machine computes; more trials would hardly help"
    )


@pytest.mark.parametrize("now_us", [700.0, 4000.0], ids=["tasks add up to less", "tasks were disturbed"])
def test_the_share_of_the_limit_is_that_of_the_latency_beside_it(now_us: float) -> None:
    """The model took 1,000 us: a sum of its tasks that says otherwise is not told in its place."""
    outlook = LITTLE_LEFT | {"current_us": now_us, "limit_us": 500.0}
    assert "50 % of what this machine computes" in done(1.5, report={"outlook": outlook}).summary


def test_without_evidence_no_number_of_trials_is_made_up() -> None:
    verdict = done(0.5, report={"outlook": None})
    assert verdict.summary == "2.0 times slower than onnxruntime (ratio 0.50, 0.49 to 0.51) after 8 trials"
    assert verdict.next_command == "mallorn resume j1 --auto", "the job finds out by itself"


def without_trials(gain: dict[str, Any], **changes: Any) -> Verdict:
    return done(1.5, trials=0, report={"outlook": None, "tuning_gain": gain, **changes})


def test_after_no_trials_it_says_what_they_would_win_and_cost_and_how_to_have_them() -> None:
    verdict = without_trials(LIKELY, limits={"peak_share": 0.9})
    assert verdict.summary.endswith(
        "after 0 trials; 90 % of what this machine computes; "
        "trials would probably win 3 % (0 to 8 %) in about 6 minutes, the most in conv2d_7"
    )
    assert verdict.next_command == "mallorn resume j1 --trials +1000"


def test_a_verdict_cuts_the_names_of_functions_of_many_operators() -> None:
    verdict = without_trials(LIKELY | {"tasks": ["fused" + 40 * "_sigmoid_tanh"]})
    assert verdict.summary.endswith(
        "the most in fused_sigmoid_tanh_sigmoid_tanh_sigmoid_tanh_sigmoid_tanh_si..."
    )


def test_after_no_trials_it_says_what_nobody_knows() -> None:
    verdict = without_trials(LIKELY | {"unseen_operators": ["conv2d", "matmul"]})
    assert verdict.summary.endswith("; nothing is known of conv2d, matmul on such a host, other hosts tell")


@pytest.mark.parametrize("high", [0.02, 0.04])
def test_trials_that_would_win_little_are_not_asked_for(high: float) -> None:
    verdict = without_trials(LIKELY | {"gain": 0.01, "high": high})
    assert verdict.next_command == ""
    words = {0.02: "win little: nothing expected above 2 %", 0.04: "probably win 1 % (0 to 4 %)"}[high]
    assert f"trials would {words}" in verdict.summary


@pytest.mark.parametrize(
    ("times", "spread", "words"),
    [
        (1.01, 0.005, "as fast as onnxruntime (ratio 1.01, 1.00 to 1.02)"),
        (1.05, 0.03, "1.05 (0.99 to 1.11) times the speed of onnxruntime (not told apart)"),
        (0.95, 0.1, "0.95 (0.78 to 1.16) times the speed of onnxruntime (not told apart)"),
        (1.05, 0.001, "5 % faster than onnxruntime (ratio 1.05, 1.05 to 1.05)"),
        (1 / 1.05, 0.001, "5 % slower than onnxruntime (ratio 0.95, 0.95 to 0.95)"),
        (0.3, 0.9, "0.30 (0.016 to 5.70) times the speed of onnxruntime (not told apart)"),
        (14.2, 0.01, "14 times faster than onnxruntime (ratio 14.2, 13.9 to 14.5)"),
    ],
)
def test_words_follow_from_the_interval_of_the_ratio(times: float, spread: float, words: str) -> None:
    assert done(times, spread).summary.startswith(f"{words} after 8 trials")


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


def test_beside_the_default_build_alone_no_result_is_good() -> None:
    verdict = done(report={"latency_us": latencies(30.0, rival="untuned")})
    assert verdict.level is Level.FAIR
    build, ratio = "TVM's default build, which is a naive one", "ratio 30.0, 29.4 to 30.6"
    assert f"30 times faster than {build} ({ratio}; onnxruntime was not timed)" in verdict.summary


def test_figures_of_a_busy_host_are_uncertain_and_to_be_taken_again() -> None:
    busy = {"conditions": {"steady": False, "note": "other work took 40 % of the processor."}}
    verdict = done(1.5, report=busy)
    assert verdict.level is Level.FAIR
    assert verdict.summary.endswith("these figures are not certain: other work took 40 % of the processor")
    assert verdict.next_command == "mallorn bench mlp.onnx --schedules mlp-tuned"


def test_where_candidates_have_mere_bounds_the_next_command_waits_for_a_quiet_host() -> None:
    trials = {"candidates": 16, "upper_bounds": 4, "valid_sec": 1.0, "other_programs": 1.0, "cores": 2}
    note = "While candidates were timed, other programs used 1.0 of 2 cores."
    verdict = done(1.5, report={"conditions": {"steady": False, "note": note, "trials": trials}})
    assert verdict.next_command == "mallorn tune mlp.onnx --wait-for-quiet"


def test_what_the_finish_did_not_do_and_warnings_are_told() -> None:
    missed = [{"step": "timing the whole model", "reason": "no memory", "hint": "free some"}]
    verdict = done(1.5, report={"skipped_steps": missed}, warnings=[JobWarning(source="search")])
    assert verdict.level is Level.FAIR
    assert verdict.summary.endswith("not done: timing the whole model; 1 warning")


def test_a_model_that_was_not_timed_is_not_judged() -> None:
    verdict = done(report={"latency_us": {}})
    assert verdict.level is Level.NONE
    assert verdict.summary.startswith("the whole model was not timed")


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


@pytest.mark.parametrize("measurer", ["replay", "simulated"])
def test_what_no_device_measured_is_said_first_and_judged_by_nobody(measurer: str) -> None:
    verdict = done(report={"measured_by": measurer})
    assert verdict.level is Level.NONE
    assert verdict.summary.startswith(f"measured by {measurer}, on no device; the whole model was not timed")
    assert done(1.4, report={"measured_by": "mine:Mine"}).summary.startswith("measured by mine:Mine; ")
    for with_device in ("tvm", "detached", ""):
        assert "measured by" not in done(1.4, report={"measured_by": with_device}).summary


UNCHECKED = {"source": "near", "basis": "carried", "confidence": "likely"}
CHECKED = UNCHECKED | {"is_verified": True}


def test_a_zero_shot_job_says_that_nobody_has_looked_and_how_to_look() -> None:
    assert done(
        trials=0, mode="zero-shot", report={"unmeasured_schedules": {"t": UNCHECKED}, "outlook": None}
    ) == said(
        Level.NONE,
        "the whole model was not timed; zero-shot: schedules from stored data, neither built nor checked",
        "mallorn bench mlp.onnx --schedules mlp-tuned",
    )


def test_a_one_shot_job_is_judged_by_its_time_and_tuned_if_that_may_bring_more() -> None:
    assert done(
        1 / 1.9, trials=0, mode="one-shot", report={"unmeasured_schedules": {"t": CHECKED}, "outlook": None}
    ) == said(
        Level.POOR,
        "1.9 times slower than onnxruntime (ratio 0.53, 0.52 to 0.54)"
        "; one-shot: schedules from stored data, built and checked",
        "mallorn tune mlp.onnx --auto",
    )


def test_a_one_shot_job_without_a_device_does_not_claim_a_check() -> None:
    found = done(trials=0, mode="one-shot", report={"unmeasured_schedules": {"t": CHECKED, "u": UNCHECKED}})
    assert "not all of them checked" in found.summary


@pytest.mark.parametrize("mode", ["one-shot", "zero-shot"])
@pytest.mark.parametrize("times", [None, 0.5, 1.0, 2.0])
def test_nobody_is_told_to_resume_a_job_that_measures_nothing(mode: str, times: float | None) -> None:
    assert (
        "resume"
        not in done(times, trials=0, mode=mode, report={"unmeasured_schedules": {"t": CHECKED}}).next_command
    )
