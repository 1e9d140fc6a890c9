"""MetaSchedule's table of a job's tasks, and the families that they form."""

from typing import Any, Final

TASK_COLUMNS: Final = {
    "index": "ID",
    "name": "Name",
    "flops": "FLOP",
    "weight": "Weight",
    "gflops": "Speed\n(GFLOPS)",
    "latency_us": "Latency\n(us)",
    "weighted_latency_us": "Weighted\nLatency (us)",
    "trials": "Trials",
    "state": "State",
}
FAMILY_COLUMNS: Final = {"family": "Family", "ids": "IDs", "why": "Why"}


def family_rows(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line a family and reason; a family may have gathered its members for several."""
    members: dict[tuple[str, str], list[str]] = {}
    for task in tasks:
        if task["family"]:
            members.setdefault((task["family"], task["family_why"]), []).append(str(task["index"]))
    return [
        {"family": family, "ids": ", ".join(ids), "why": why}
        for (family, why), ids in sorted(members.items())
    ]
