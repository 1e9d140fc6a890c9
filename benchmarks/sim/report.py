"""The tournament as tables for people and as figures for the results."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from benchmarks.sim.ratios import Ratio
from benchmarks.sim.tournament import FACTORS, SHARES, Cell

HEAD: Final = (
    f"{'curves':9} {'model':14} {'dev':>3} {'policy':12} {'trials to 1.05x':>15} {'1.02x':>7} "
    f"{'sec to 1.05x':>12} {'1.02x':>8} {'reached':>7}  "
    + " ".join(f"regret@{share:.0%}".rjust(11) for share in SHARES)
    + f" {'decisions/s':>11}"
)


def line(cell: Cell) -> str:
    """One row of the table under `HEAD`."""
    near, nearer = FACTORS
    regrets = " ".join(f"{cell.regret(share):11.3f}" for share in SHARES)
    return (
        f"{cell.kind:9} {cell.model:14} {cell.devices:3} {cell.policy:12} {cell.trials_to(near):15.0f} "
        f"{cell.trials_to(nearer):7.0f} {cell.seconds_to(near):12.1f} {cell.seconds_to(nearer):8.1f} "
        f"{cell.reached(near):3}/{len(cell.runs):<3}  {regrets} {cell.decisions_per_sec:11.0f}"
    )


def ratio_lines(ratios: Sequence[Ratio]) -> Iterator[str]:
    """Geometric means over models, with the worst model named."""
    for found in ratios:
        worst = max(found.by_model, key=lambda model: found.by_model[model])
        yield (
            f"{found.kind:9} {found.devices:3} devices: {found.policy:12} needs {found.mean:.2f} of the "
            f"{found.what} of {found.against} to {found.factor:.2f}x (worst: {worst} {found.worst:.2f})"
        )


def figures(cell: Cell) -> dict[str, Any]:
    """The raw figures of a cell: a list has one entry a seed."""
    per_seed = {
        f"{what}_to_{factor}": [round(getattr(run, f"{what}_to")(factor), 3) for run in cell.runs]
        for what in ("trials", "seconds")
        for factor in FACTORS
    }
    return {
        "curves": cell.kind,
        "model": cell.model,
        "policy": cell.policy,
        "devices": cell.devices,
        **per_seed,
        **{f"reached_{factor}": cell.reached(factor) for factor in FACTORS},
        "regret": {str(share): cell.regret(share) for share in SHARES},
        "decisions_per_sec": cell.decisions_per_sec,
        "ended": sorted({run.finished for run in cell.runs}),
    }


def ratio_figures(found: Ratio) -> dict[str, Any]:
    """A ratio with what it was made of."""
    return {
        "policy": found.policy,
        "against": found.against,
        "curves": found.kind,
        "devices": found.devices,
        "what": found.what,
        "factor": found.factor,
        "mean": found.mean,
        "by_model": found.by_model,
    }
