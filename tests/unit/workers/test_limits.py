"""A model beside what its machine computes at most."""

from mallorn.core.values.finish_report import Limits
from mallorn.workers.finish.run import share_of_peak


def test_the_share_is_what_a_run_computes_of_what_the_machine_could() -> None:
    assert share_of_peak(2e9, 10_000.0, 400.0, "float32") == Limits(
        flop=2e9, peak_gflops=400.0, peak_share=0.5
    )


def test_what_a_model_reached_the_machine_allows() -> None:
    found = share_of_peak(2e9, 10_000.0, 150.0, "float32")
    assert (found.peak_gflops, found.peak_share) == (200.0, 1.0)


def test_the_peak_of_float32_says_nothing_of_narrow_numbers() -> None:
    assert share_of_peak(2e9, 10_000.0, 400.0, "bf16").peak_share is None
