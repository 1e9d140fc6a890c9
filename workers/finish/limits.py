"""How near the tuned model comes to what this machine computes at most."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from workers.faces.peak import Peak
from workers.finish.contenders import Contest
from workers.finish.stand import Stand
from workers.finish.undone import Undone

MEASURE: Final = "measure what this machine computes at most"


def limits(
    stand: Stand, tasks: Sequence[Contest], report: Mapping[str, Any], undone: Undone
) -> dict[str, Any]:
    """The limits' part of the report, where the tuned model was timed.

    Without the peak where the host was busy: what others took of it would make us look near.
    """
    timing = (report.get("latency_us") or {}).get("tuned")
    if timing is None:
        return {}
    flop = sum(task.workload.flops * task.task.weight for task in tasks)
    if not report["conditions"]["steady"]:
        return {"limits": {"flop": flop}}
    peak_gflops = undone.attempt(MEASURE, partial(_peak_gflops, stand))
    if peak_gflops is None:
        return {"limits": {"flop": flop}}
    return {"limits": share_of_peak(flop, timing["median"], peak_gflops, stand.claimed.options.precision)}


def share_of_peak(flop: float, tuned_us: float, peak_gflops: float, precision: str) -> dict[str, float]:
    """The operations of one run beside the peak, which is float32's: it says nothing of narrower types."""
    if precision != "float32":
        return {"flop": flop, "peak_gflops": peak_gflops}
    gflops = flop / tuned_us / 1e3
    peak_gflops = max(peak_gflops, gflops)  # no measured peak can be below what was reached
    return {"flop": flop, "peak_gflops": peak_gflops, "peak_share": gflops / peak_gflops}


def _peak_gflops(stand: Stand) -> float:
    """Measured here and now, in a second or two."""
    target = stand.claimed.target
    env = {"TVM_NUM_THREADS": str(target.num_cores)}
    with Peak(env=env, name="peak") as child:
        child.start()
        with stand.alone():
            return child.peak_gflops(target.text, target.num_cores)
