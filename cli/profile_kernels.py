"""The command that times a tuned model's kernels and compares them with peak rates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mallorn.cli import compile_and_bench
from mallorn.cli.schedule_directory import local_model, read_schedule_directory
from mallorn.cli.terminal.output import JsonOption, print_json, print_note, stdout, table
from mallorn.client.onnx_export import find_model_file
from mallorn.core.values.machine import element_bytes, peak_gflops
from mallorn.core.values.manifest import ScheduleSet
from mallorn.wording.format_values import Column, format_latency

if TYPE_CHECKING:
    from mallorn.core.values.graph_report import RemainingCopy
    from mallorn.core.values.machine import Machine
    from mallorn.workers.interfaces.model_compiler import ModelTask

SECONDS: Final = 2.0


def profile(
    model: compile_and_bench.ModelArgument,
    schedules: compile_and_bench.SchedulesOption,
    target: compile_and_bench.TargetOption = None,
    schedule_set: compile_and_bench.ScheduleSetOption = ScheduleSet.ALONE,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="How many seconds to profile.")
    ] = SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Show a model's time by kernel, the machine's limits, and causes that trials do not change."""
    from mallorn.workers.whole_model.engines import TUNED, Engines

    model, exported = find_model_file(model), read_schedule_directory(schedules, target, schedule_set)
    with local_model(model, exported) as whole_model:
        library = whole_model.folder / "tuned.so"
        compile_and_bench.compile_tuned(whole_model, exported, library)
        with Engines(whole_model, [TUNED]) as engines:
            engines.load({TUNED: library})
            whole_us = engines.latencies()[TUNED].median
            times_us = engines.kernel_times(seconds)[TUNED]
        extraction, on_cores = whole_model.extraction(), whole_model.target.runs_on_cores
        # Peaks and explanations are for this CPU, not for a GPU.
        machine = whole_model.machine() if on_cores else None
        causes = (
            whole_model.explain_kernels(exported.create_database_folder(whole_model.folder))
            if on_cores
            else {}
        )
    kernels = [
        replace(
            kernel,
            held_back_by=[
                *describe_copy(kernel, extraction.graph.copies, machine),
                *causes.get(kernel.kernel, ()),
            ],
        )
        for kernel in describe_kernels(times_us, {task.name: task for task in extraction.tasks}, machine)
    ]
    if as_json:
        limits = machine and _limits(machine)
        kernel_rows = [asdict(kernel) for kernel in kernels]
        print_json({"latency_us": whole_us, "machine": limits, "kernels": kernel_rows})
        return
    stdout().print(table(kernels, COLUMNS))
    for line in summary(whole_us, kernels, machine):
        print_note(line)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's time in the model; figures that need its task are None without one."""

    kernel: str
    calls: int | None
    time_us: float  # of all calls
    share: float
    gflops: float | None = None
    floor_us: float | None = None  # time of its arithmetic at the machine's peak
    gbytes_per_sec: float | None = None
    held_back_by: Sequence[str] = ()  # causes that more trials do not change


COLUMNS: Final = (
    Column[Kernel]("KERNEL", lambda kernel: kernel.kernel),
    Column[Kernel]("CALLS", lambda kernel: kernel.calls),
    Column[Kernel]("TIME", lambda kernel: format_latency(kernel.time_us)),
    Column[Kernel]("SHARE", lambda kernel: f"{kernel.share:.0%}"),
    Column[Kernel]("GFLOP/S", lambda kernel: f"{kernel.gflops:.0f}" if kernel.gflops else ""),
    Column[Kernel](
        "OF PEAK", lambda kernel: f"{kernel.floor_us / kernel.time_us:.0%}" if kernel.floor_us else ""
    ),
    Column[Kernel]("GB/S", lambda kernel: f"{kernel.gbytes_per_sec:.0f}" if kernel.gbytes_per_sec else ""),
    Column[Kernel]("HELD BACK BY", lambda kernel: "; ".join(kernel.held_back_by)),
)


def describe_kernels(
    times_us: Mapping[str, float], tasks: "Mapping[str, ModelTask]", machine: "Machine | None"
) -> list[Kernel]:
    """Return the kernels, slowest first, with their rates if their tasks are known."""
    total_us, kernels = sum(times_us.values()), []
    for name, time_us in sorted(times_us.items(), key=lambda item: -item[1]):
        kernel, task = Kernel(name, None, time_us, time_us / total_us), tasks.get(name)
        if task is not None:
            flops = task.flops * task.weight
            # Assume that every argument is read or written once.
            bytes_moved = sum(element_bytes(dtype) * prod(shape) for _, dtype, shape in task.args.args)
            peak = machine and peak_gflops(machine, {dtype for _, dtype, _ in task.args.args})
            kernel = replace(
                kernel,
                calls=task.weight,
                gflops=flops / time_us / 1e3,
                floor_us=flops / peak / 1e3 if peak else None,
                gbytes_per_sec=bytes_moved * task.weight / time_us / 1e3,
            )
        kernels.append(kernel)
    return kernels


def describe_copy(
    kernel: Kernel, left: "Iterable[RemainingCopy]", machine: "Machine | None"
) -> Iterator[str]:
    """Yield a text if the kernel only copies data: for which operator, and how fast."""
    for copy in (copy for copy in left if copy.function == kernel.kernel):
        label = "a copy" if copy.kind == "copy" else f"a copy: {copy.kind}"
        rate = f", {kernel.gbytes_per_sec:.3g} GB/s" if kernel.gbytes_per_sec else ""
        limit = f" of {machine.memory_gbytes_per_sec:.3g}" if rate and machine else ""
        yield f"{label} asked for by {copy.required_by}{rate}{limit}"


def summary(whole_us: float, kernels: Sequence[Kernel], machine: "Machine | None") -> list[str]:
    """Return lines on the model's latency, its kernels' sum, and the machine's limits."""
    kernels_us = sum(kernel.time_us for kernel in kernels)
    lines = [
        f"the model takes {format_latency(whole_us)}, its kernels {format_latency(kernels_us)} of it as they "
        "were watched"
    ]
    if machine is not None:
        gflops, gbytes = _limits(machine).values()
        floor_us = sum(kernel.floor_us or 0.0 for kernel in kernels)
        lines += [
            f"this machine allows {gflops:.0f} GFLOP/s, and reads memory at {gbytes:.0f} GB/s",
            f"the model's arithmetic alone would take {format_latency(floor_us)} at that speed",
        ]
    return lines


def _limits(machine: "Machine") -> dict[str, float]:
    return {"gflops": peak_gflops(machine, ["float32"]), "gbytes_per_sec": machine.memory_gbytes_per_sec}
