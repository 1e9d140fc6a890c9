"""The command that checks everything a tuning job needs before one is submitted."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mallorn.cli import host_checks as checks
from mallorn.cli.doctor_checks.findings import Finding, print_findings
from mallorn.cli.host_checks import run_check
from mallorn.cli.terminal.job_options import ShapeOption, TargetOption, parse_input_shape
from mallorn.cli.terminal.output import Address, JsonOption, client
from mallorn.client.onnx_export import find_model_file
from mallorn.core.errors import InvalidTarget, NoDevice
from mallorn.core.settings import Settings
from mallorn.core.targets import LOCAL, NATIVE, Target, kind_of_word, parse_target

if TYPE_CHECKING:
    from mallorn.workers.interfaces.model_compiler import ModelCompiler


def check(
    model: Annotated[Path | None, typer.Argument(metavar="[MODEL]", help="An ONNX file.")] = None,
    target: TargetOption = LOCAL,
    input_shape: ShapeOption = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Where the service would keep its data.  [MALLORN_DATA_DIR]")
    ] = None,
    as_json: JsonOption = False,
    *,
    address: Address,
) -> None:
    """Check that this machine, and a model, have what tuning needs. Exits with code 9 if not."""
    shapes = dict(parse_input_shape(text) for text in input_shape or ())
    place = (data.expanduser() if data else Settings().data_dir).absolute()
    with checks.tvm_process(model) as graphs:
        findings = _check_machine_and_model(graphs, model, target, shapes, place, address)
        all_well = f"all is there; go on with   mallorn tune {model or 'model.onnx'}"
        print_findings(findings, as_json, "failed", "missing", all_well)


def _check_machine_and_model(
    graphs: "ModelCompiler",
    model: Path | None,
    target: str,
    shapes: dict[str, list[int]],
    data: Path,
    address: Address,
) -> Iterator[Finding]:
    yield (links := run_check("compiler", checks.check_linker))
    yield run_check("disk", lambda: checks.check_free_space(data))
    targets: list[Target] = []

    def parse() -> str:
        parsed_target, words = checks.resolve_target(target, address.url is not None)
        targets.append(parsed_target)
        return words

    result = run_check("target", parse)
    hardware = kind_of_word(target)
    with suppress(InvalidTarget):  # as `local`
        hardware = hardware or parse_target(target).hardware
    tools = [] if hardware is None else [*checks.check_toolchain(hardware, address.url is None)]
    if "mallorn check" in result.hint:  # the hint names this very command
        missing = (finding.hint for finding in tools if not finding.ok)
        result = replace(result, hint=next(missing, "mallorn doctor"))
    yield from (result, *tools)
    if targets and targets[0].runs_on_cores and targets[0].toolchain != NATIVE:
        yield run_check("linker", lambda: checks.check_linker(targets[0].toolchain))
    tvm_result = run_check("tvm", lambda: checks.check_tvm(graphs, targets[0])) if targets else None
    if tvm_result is not None:
        yield tvm_result
    has_tvm = tvm_result is not None and tvm_result.ok
    if has_tvm and links.ok and targets[0].runs_on_cores and address.url is None:
        yield run_check("kernel", lambda: checks.check_kernel(targets[0]))
    if model is not None and has_tvm:
        yield run_check(
            "model", lambda: checks.check_model_import(graphs, find_model_file(model), shapes, targets[0])
        )
    if address.url is not None and targets:
        yield run_check("device", lambda: _devices_of_service(targets[0], address))
    mode = Settings().sandbox_mode()
    yield run_check("sandbox", lambda: checks.check_sandbox_level(mode), necessary=mode == "require")
    yield run_check("cores", checks.check_core_speeds, necessary=False)
    yield run_check("onnxruntime", checks.check_onnxruntime, necessary=False)


def _devices_of_service(target: Target, address: Address) -> str:
    with client(*address) as api:
        devices = api.devices()
    names = [row.name for row in devices if row.online and row.target == target.text]
    if not names:
        message = f"no device of {address.url} measures for {target}"
        raise NoDevice(message, hint="mallorn device --target local")
    return f"{', '.join(names)} at {address.url}"
