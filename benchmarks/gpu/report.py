"""Tables of results: assertions, and kernels and models compared with libraries."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import median

from benchmarks.gpu import aims
from benchmarks.gpu.cells import BEGUN, Row, Value, read_rows
from benchmarks.gpu.kernel_index import CHANCE, DLIGHT, FIRST_GUESS, OWN_KIND, WGMMA
from benchmarks.gpu.search_places import OURS, STOCK
from mallorn.core.outcomes import is_disturbed

_ASSERTION = "assertion: "
_COMPARED = (FIRST_GUESS, OURS, CHANCE, STOCK)


def report(folder: Path) -> str:
    """Return Markdown tables of the results of all parts; empty tables are left out.

    Part 3's are in `part3`, as unpacked from its archive.
    """
    first, second, fourth = (
        [row for row in read_rows(folder / f"part{number}.jsonl") if BEGUN not in row] for number in (1, 2, 4)
    )
    files = sorted((folder / "part3").glob("*/cells.jsonl"))
    third = _by_task(row for file in files for row in read_rows(file) if BEGUN not in row)
    parts = [
        _assertions(first),
        _device(first),
        _kernels(first),
        _wgmma(first),
        _searches(third),
        _models([*second, *fourth]),
        _table("Aims: the library's time over ours", aims.HEAD, aims.rows(first, third, fourth)),
    ]
    return "\n".join(part for part in parts if part)


def _assertions(rows: Sequence[Row]) -> str:
    asserted = [row for row in rows if str(row["cell"]).startswith(_ASSERTION)]
    words = {True: "holds", False: "FAILS", None: "left out"}
    lines = [
        (
            str(row["cell"]).removeprefix(_ASSERTION),
            words[_ok(row)],
            _brief(row.get("error") or row.get("left_out")),
        )
        for row in asserted
    ]
    return _table("Assertions", ("assertion", "", "why"), lines)


def _device(rows: Sequence[Row]) -> str:
    cells = {str(row["cell"]): row for row in rows}
    identity = cells.get(f"{_ASSERTION}device identity", {})
    nvml = identity.get("nvml")
    facts = [
        (name, identity[name]) for name in ("name", "uuid", "memory_bytes", "driver") if name in identity
    ]
    facts += list(nvml.items()) if isinstance(nvml, dict) else []
    if rate := cells.get("copy bandwidth", {}).get("gigabytes_per_sec"):
        facts.append(("copy, GB/s read and written", rate))
    for name, row in cells.items():
        if "tflops" in row:
            facts.append((f"{name}, {row['library']}, TFLOP/s", row["tflops"]))
    return _table("Device", ("", ""), [(name, str(value)) for name, value in facts])


def _kernels(rows: Sequence[Row]) -> str:
    """Return a line per task: the rival's time over first guess, DLight and chance."""
    by_task: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if "task" in row:
            by_task[str(row["task"])].append(row)
    lines, ratios = [], defaultdict[str, list[float]](list)
    for task, tried in by_task.items():
        right = [row for row in tried if _ok(row) and "us" in row]
        rivals_us = [_number(row["rival_us"]) for row in right if "rival_us" in row]
        rival_us = median(rivals_us) if rivals_us else None
        cells = []
        for means in (FIRST_GUESS, DLIGHT, CHANCE):
            times_us = [_number(row["us"]) for row in right if row["means"] == means]
            kinds = {str(row.get("kind") or "") for row in right if row["means"] == means} - {""}
            kind = f" {kinds.pop()}" if means == FIRST_GUESS and kinds else ""
            cells.append(_ratio_or_us(min(times_us, default=None), rival_us) + kind)
            if times_us and rival_us:
                ratios[means].append(rival_us / min(times_us))
        others = ", ".join(
            f"{_ratio_or_us(_number(row['us']), rival_us)} {row['kind']}"
            for row in right
            if row["means"] == OWN_KIND
        )
        chance_us = [_number(row["us"]) for row in right if row["means"] == CHANCE]
        spread = f"{median(chance_us) / min(chance_us):.1f}" if chance_us else ""
        library = next((str(row["rival"]) for row in right if "rival" in row), "none")
        library_us = "" if rival_us is None else f"{rival_us:.1f}"
        bounds = sum(is_disturbed(_number(row.get("disturbed") or 0.0)) for row in right)
        counts = f"{len(right)} of {len(tried)}" + (f", {bounds} disturbed" if bounds else "")
        lines.append((task, library, library_us, *cells, spread, others, counts))
    head = (
        *("task", "beside", "its us", FIRST_GUESS, DLIGHT, f"best by {CHANCE}", "median/best"),
        *("other kinds", "right"),
    )
    if ratios:
        medians = [
            f"{median(ratios[means]):.2f}" if ratios[means] else "" for means in (FIRST_GUESS, DLIGHT, CHANCE)
        ]
        lines.append(("median", "", "", *medians, "", "", ""))
    return _table("Kernels: the library's time over ours (microseconds where there is none)", head, lines)


def _wgmma(rows: Sequence[Row]) -> str:
    """Return the prototype's time beside the fastest kernel of its task by `mma` and the library's."""
    lines = []
    for row in rows:
        if row.get("means") == WGMMA:
            others = [each for each in rows if each.get("task") == row["task"] and each is not row]
            times = {str(each["cell"]): _number(each["us"]) for each in others if _ok(each) and "us" in each}
            best = min(times, key=lambda cell: times[cell], default=None)
            us = _number(row["us"]) if _ok(row) else None
            ratio = f"{times[best] / us:.2f}" if us and best else ""
            best_us = f"{best.partition('/')[2]} {times[best]:.1f} us" if best else ""
            library_us = f"{_number(row['rival_us']):.1f} us" if "rival_us" in row else ""
            state = "right" if _ok(row) else f"FAILS: {_brief(row.get('error'))}"
            lines.append((state, "" if us is None else f"{us:.1f} us", best_us, ratio, library_us))
        elif row["cell"] == WGMMA:
            lines.append((f"left out: {_brief(row.get('left_out'))}", "", "", "", ""))
    head = ("result", "its time", "best other kernel", "that over its time", "library")
    return _table("The prototype by wgmma", head, lines)


def _by_task(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """Return the cells of part 3 by task and by their names within the task."""
    searches: dict[str, dict[str, Row]] = {}
    for row in rows:
        task, _, name = str(row["cell"]).partition("/")
        if name:
            searches.setdefault(task, {})[name] = row
    return searches


def _searches(searches: Mapping[str, Mapping[str, Row]]) -> str:
    """Return a line per task: the library's time over that of each method's best, and idle shares."""
    lines: list[tuple[str, ...]] = []
    gains: dict[str, list[float]] = {}
    for task, cells in searches.items():
        in_turn = cells.get("in turn", {})
        times = in_turn.get("us")
        times_us = {name: _number(us) for name, us in times.items()} if isinstance(times, dict) else {}
        library_us = None if in_turn.get("library_us") is None else _number(in_turn["library_us"])
        ours_us = times_us.get(OURS)
        for name, us in times_us.items():
            if ours_us and name != OURS:
                gains.setdefault(name, []).append(us / ours_us)
        best = [_ratio_or_us(times_us.get(name), library_us) for name in _COMPARED]
        idle = [str(cells.get(f"{method}/0", {}).get("idle_share", "")) for method in _COMPARED[1:]]
        tools = [
            f"{name.removeprefix('sanitizer ')}: {_state(row)}"
            for name, row in cells.items()
            if "sani" in name
        ]
        us = "" if library_us is None else f"{library_us:.1f}"
        lines.append((task, str(in_turn.get("library", "")), us, *best, "/".join(idle), ", ".join(tools)))
    if gains:
        means = {name: exp(sum(map(log, ratios)) / len(ratios)) for name, ratios in gains.items()}
        ratios = [f"{means[name]:.2f}" if name in means else "" for name in _COMPARED]
        lines.append((f"time over ours, geometric mean of {len(lines)}", "", "", *ratios, "", ""))
    head = ("task", "beside", "its us", *_COMPARED, "idle", "sanitizer")
    return _table("Searches: the library's time over ours (microseconds where there is none)", head, lines)


def _state(row: Row) -> str:
    return {True: "none", False: "ERRORS", None: "left out"}[_ok(row)]


def _models(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        if row["cell"] == "origin":
            continue
        us = row.get("us")
        if isinstance(us, dict):
            text = ", ".join(f"{name} {_number(value):.0f} us" for name, value in us.items())
        elif us is not None:
            text = f"{_number(us):.0f} us"
        else:
            text = _brief(row.get("verdict") or row.get("error") or row.get("left_out") or row.get("reason"))
        lines.append((str(row["cell"]), {True: "done", False: "FAILED", None: "left out"}[_ok(row)], text))
    return _table("Whole models", ("step", "", ""), lines)


def _ratio_or_us(ours_us: float | None, rival_us: float | None) -> str:
    if ours_us is None:
        return ""
    return f"{ours_us:.1f} us" if rival_us is None else f"{rival_us / ours_us:.2f}"


def _ok(row: Row) -> bool | None:
    ok = row.get("ok")
    return None if ok is None else bool(ok)


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float | str) else float("nan")


def _brief(value: Value) -> str:
    return " ".join(str(value or "").replace("|", "/").split())[:160]


def _table(title: str, head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [f"| {' | '.join(line)} |" for line in lines]
    if not rows:
        return ""
    return "\n".join([f"## {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *rows, ""])
