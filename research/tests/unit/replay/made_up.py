"""A recording of a made-up matrix product, failures included."""

import numpy as np

from mallorn.searchers.base import Trial
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn_research.replay.recording_file import RecordedTask

SHAPE = (64, 64, 64)


def made_up(
    candidates: int = 120, seed: int = 0, name: str = "fused_matmul", op: str = "matmul"
) -> RecordedTask:
    """The defaults and random candidates of a synthetic space, as if they had been measured."""
    space = SyntheticSpace(*SHAPE)
    drawn = [*space.defaults(), *space.sample(np.random.default_rng(seed), 20 * candidates)]
    trials = [space.measure(candidate) for candidate in list(dict.fromkeys(drawn))[:candidates]]
    return RecordedTask(
        workload=f"{name}-{seed}",
        name=name,
        op=op,
        structure="s0",
        flops=1e6,
        args={"args": [["TENSOR", "float32", [64, 64]]]},
        descriptors=tuple(np.log2(SHAPE).tolist()),
        target='{"kind":"llvm","num-cores":2}',
        context={"host_class": "a-host", "threads": 2},
        sketches=tuple(space.sketches),
        trials=tuple(recorded(trial, "random" if at else "default") for at, trial in enumerate(trials)),
    )


def recorded(trial: Trial, origin: str) -> Trial:
    latency = trial.latency_us
    return Trial(
        candidate=trial.candidate,
        outcome=trial.outcome,
        latency_us=latency,
        run_us=() if latency is None else (float(np.float32(latency)),),
        build_ms=None if trial.build_ms is None else float(np.float32(trial.build_ms)),
        origin=origin,
        error="no" if latency is None else "",
    )
