"""What a job gets by itself on a GPU, and that a user's own choice stays."""

from mallorn.core.job_options import JobOptions
from mallorn.core.registry import list_names
from mallorn.core.targets import Target

CPU = Target('{"kind":"llvm","mcpu":"haswell"}')
GPU = Target('{"kind":"cuda","arch":"sm_90a"}')
COST_MODEL, REPEAT_MS = "kernel-time", 20


def test_a_cuda_job_has_a_model_of_kernels_and_short_timings() -> None:
    options = JobOptions().with_target_defaults(GPU)
    assert (options.cost_model, options.evaluator.min_repeat_ms) == (COST_MODEL, REPEAT_MS)
    assert COST_MODEL in list_names("cost_model")


def test_other_targets_keep_theirs() -> None:
    assert JobOptions().with_target_defaults(CPU) == JobOptions()


def test_what_a_user_chose_stays() -> None:
    chosen = JobOptions.model_validate(
        {"cost_model": "mlp", "evaluator": {"min_repeat_ms": 100, "repeat": 2}}
    )
    assert chosen.with_target_defaults(GPU) == chosen
    number = JobOptions.model_validate({"evaluator": {"number": 7}}).with_target_defaults(GPU)
    assert (number.evaluator.number, number.evaluator.min_repeat_ms) == (7, REPEAT_MS)
