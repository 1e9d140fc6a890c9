"""The tournament as tables for people and as figures for the results."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from operator import attrgetter
from typing import Any, Final

from benchmarks.sim.ratios import WHATS, Ratio
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
    """A table of geometric means over models, the worst model in brackets."""
    columns = [f"{what} to {factor:.2f}x" for factor, what in product(FACTORS, WHATS)]
    yield f"{'curves':9} {'dev':>3} {'policy / against':26}" + "".join(name.rjust(20) for name in columns)
    place = attrgetter("kind", "devices", "policy", "against")
    for (kind, devices, policy, against), found in groupby(sorted(ratios, key=place), key=place):
        cells = {(one.factor, one.what): f"{one.mean:.2f} ({one.worst:.2f})" for one in found}
        texts = "".join(cells[column].rjust(20) for column in product(FACTORS, WHATS))
        yield f"{kind:9} {devices:3} {f'{policy} / {against}':26}" + texts


def oracle_line(kind: str, model: str, fewest: Mapping[float, float]) -> str:
    """How few trials would do on a model."""
    near, nearer = (fewest[factor] for factor in FACTORS)
    return f"{kind:9} {model:14} {'':3} {'(foresight)':12} {near:15.0f} {nearer:7.0f}"


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
