"""The table of aims, row by row, beside what was measured; a row that was not measured is empty."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import Final, NamedTuple

from benchmarks.gpu.cells import Row, Value
from benchmarks.gpu.kernel_index import CHANCE, FIRST_GUESS
from benchmarks.gpu.search_places import IN_TURN, OURS, STOCK
from benchmarks.gpu.tasks import BY_NAME, SEARCHED, operand_bytes

TUNED: Final = "tuned"
COMPILED: Final = "torch.compile"
HEAD: Final = ("work", "aim", "beside", "measured")
_SHOWN: Final = (FIRST_GUESS, OURS, CHANCE, STOCK)


class Aim(NamedTuple):
    """A row of the table of aims: the library's time over ours, or a share of the copy bandwidth."""

    work: str
    aim: str
    beside: str
    tasks: tuple[str, ...]
    has_bandwidth: bool = False


AIMS: Final = (
    Aim(
        "fp16 product, 4096 and larger",
        "stock space 0.25-0.45; with m16n8k16 and deeper stages 0.5-0.6",
        "cuBLAS",
        (
            "product 4096 transposed fp16 sums fp32",
            "product 4096 bf16 sums fp32",
            "product 8192 fp16 sums fp32",
        ),
    ),
    Aim(
        "fp16 product, up to 1024, odd or narrow",
        "0.7-1.2",
        "cuBLAS",
        ("product 16x4096x4096 fp16 sums fp32", "product 1000x777x1234 fp16 sums fp32"),
    ),
    Aim(
        "fp32 without TF32",
        "0.85-0.95",
        "cuBLAS SGEMM",
        ("product 1000x777x1234 fp32", "product 2048 fp32"),
    ),
    Aim("TF32", "", "cuBLAS in TF32", ("product 2048 tf32",)),
    Aim("int8 product", "", "cuBLAS", ("product 2048 transposed int8 sums int32",)),
    Aim(
        "fused epilogue, large; small",
        "0.55-0.7; 1.0-1.4",
        "cuBLAS and a kernel",
        ("product 4096 bias ReLU fp16 sums fp32", "product 512 bias ReLU fp16 sums fp32"),
    ),
    Aim(
        "product with a vector, fp16, L2 flushed",
        "0.8-0.9 of copy bandwidth; 1.0-1.3",
        "cuBLAS",
        ("product with a vector 8192x8192 fp16 sums fp32",),
        True,
    ),
    Aim(
        "the same in int4",
        "2-3.5",
        "cuBLAS fp16",
        ("product with a vector 8192x8192 int4 weights",),
        True,
    ),
    Aim(
        "norms, softmax, movers",
        "0.85-0.95 of bandwidth; level",
        "Inductor (here torch eager)",
        ("layer norm 4096x768 fp32", "softmax 4096x1024 fp32", "transpose 4096x1024 fp32"),
        True,
    ),
    Aim(
        "attention",
        "level to 128 tokens; 0.2-0.4 long",
        "SDPA",
        ("attention 12x128x64 fp16 in one kernel", "attention 12x384x64 fp16 in one kernel"),
    ),
    Aim("depthwise, grouped", "1.2-2.5", "cuDNN", ("depthwise 1x56x56x144 fp16 sums fp32",)),
    Aim(
        "ordinary convolutions",
        "0.4-0.7; batch 1 0.8-1.2",
        "cuDNN",
        ("convolution 8x28x28x128 to 128 fp16 sums fp32",),
    ),
)


@dataclass(frozen=True, slots=True)
class Times:
    """Times of a task in microseconds: of the library, and of our candidates by how they were found."""

    library_us: float | None
    ours_us: Mapping[str, float] = field(default_factory=dict)


def rows(
    kernels: Sequence[Row], searches: Mapping[str, Mapping[str, Row]], models: Sequence[Row]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the table from the cells of part 1, of part 3 by task, and of part 4."""
    copy = _number(
        {str(row["cell"]): row for row in kernels}.get("copy bandwidth", {}).get("gigabytes_per_sec")
    )
    for aim in AIMS:
        times = {name: _times(name, kernels, searches.get(name, {})) for name in aim.tasks}
        words = [
            f"{name}: {told}"
            for name, each in times.items()
            if (told := _told(name, each, copy if aim.has_bandwidth else None))
        ]
        yield aim.work, aim.aim, aim.beside, "; ".join(words)
    yield "whole models, batch 1, with graphs", "0.9-1.3", COMPILED, "; ".join(_models(models))
    yield "whole models, large, fp16", "0.4-0.7", COMPILED, ""
    yield from _searches(searches)


def _times(name: str, kernels: Sequence[Row], cells: Mapping[str, Row]) -> Times:
    """Return the times in turn of part 3; if there are none, those of part 1's kernels."""
    us = cells.get(IN_TURN, {}).get("us")
    if isinstance(us, dict) and us:
        found = {means: value for means, each in us.items() if (value := _number(each)) is not None}
        return Times(_number(cells[IN_TURN].get("library_us")), found)
    own = [row for row in kernels if row.get("task") == name and row.get("ok") and "us" in row]
    rivals = sorted(us for row in own if (us := _number(row.get("rival_us"))) is not None)
    timed: dict[str, float] = {}
    for row in own:
        means, value = str(row["means"]), _number(row["us"])
        if means in _SHOWN and value is not None:
            timed[means] = min(value, timed.get(means, value))
    return Times(rivals[len(rivals) // 2] if rivals else None, timed)


def _told(name: str, times: Times, copy_gb_per_sec: float | None) -> str:
    told = []
    for means in _SHOWN:
        if (us := times.ours_us.get(means)) is None:
            continue
        text = f"{us:.1f} us" if times.library_us is None else f"{times.library_us / us:.2f}"
        if copy_gb_per_sec is not None:
            share = operand_bytes(BY_NAME[name]) / us / 1e3 / copy_gb_per_sec
            text += f" ({share:.2f} of copy bandwidth)"
        told.append(f"{means} {text}")
    return ", ".join(told)


def _models(cells: Sequence[Row]) -> Iterator[str]:
    for row in cells:
        us = row.get("us")
        if isinstance(us, dict) and {TUNED, COMPILED} <= us.keys():
            ours_us, theirs_us = _number(us[TUNED]), _number(us[COMPILED])
            if ours_us and theirs_us:
                yield f"{str(row['cell']).partition(':')[0]} {theirs_us / ours_us:.2f}"


def _searches(searches: Mapping[str, Mapping[str, Row]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield what the search is to win, how idle the GPU may be, and the races."""
    tasks = [task.name for task in SEARCHED if task.name in searches]
    found = [_times(name, (), searches[name]).ours_us for name in tasks]
    for means, aim in ((FIRST_GUESS, "1.15"), (CHANCE, "1.10"), (STOCK, "")):
        gains = [each[means] / each[OURS] for each in found if {means, OURS} <= each.keys()]
        mean = exp(sum(map(log, gains)) / len(gains)) if gains else 0.0
        count = f"{mean:.2f} (geometric mean of {len(gains)} of {len(SEARCHED)} tasks)" if gains else ""
        yield "search at equal trials", aim, means, count
    idle = [
        share
        for name in tasks
        for cell, row in searches[name].items()
        if cell.startswith(f"{OURS}/") and (share := _number(row.get("idle_share"))) is not None
    ]
    told = f"{min(idle):.2f} to {max(idle):.2f} in {len(idle)} tasks" if idle else ""
    yield "idle share of the GPU while ours searches", "at most 0.10", "", told
    checked = [
        row
        for name in tasks
        for cell, row in searches[name].items()
        if "sanitizer" in cell and row.get("ok") is not None
    ]
    wrong = sum(not row["ok"] for row in checked)
    yield (
        "races and wrong accesses",
        "none",
        "",
        f"{wrong} of {len(checked)} runs of tools" if checked else "",
    )


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None
