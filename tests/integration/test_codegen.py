"""What a candidate's machine code leaves out, and what it does not."""

import re
from typing import Any

import pytest
import tvm

from mallorn.workers.tvm.compile.build_libraries import compile_module
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module, parse_tvm_target
from tests.unit.tvm_space.programs import matmul

HOST = '{"kind":"llvm","num-cores":2}'
KERNEL = "main_compute_"


def assembly(library: Any) -> str:
    return str(library.inspect_source("asm"))


def kernel(text: str) -> list[str]:
    """The instructions of the part that computes; labels count the functions before it."""
    text = re.sub(r"\.L(BB|CPI)\d+_", r".L\1_", text)
    lines = text[text.index(f"\n{KERNEL}:") :].splitlines()[2:]
    return [
        line for line in lines[: lines.index("\t.cfi_endproc")] if not line.lstrip().startswith((".", "#"))
    ]


def test_arguments_are_not_checked_and_the_kernel_is_the_same() -> None:
    module = parse_module(matmul())
    ours, stock = (
        assembly(compile_module(module, HOST)[0]),
        assembly(tvm.tirx.build(module, target=parse_tvm_target(HOST))),
    )
    assert "dtype" in stock
    assert "dtype" not in ours
    assert kernel(ours) == kernel(stock)


def test_llvm_knows_our_option(capfd: pytest.CaptureFixture[str]) -> None:
    compile_module(parse_module(matmul()), HOST)
    assert "ignored" not in capfd.readouterr().err


def test_a_target_with_a_tag_is_compiled_as_the_tag_says() -> None:
    tagged = '{"kind":"llvm","tag":"raspberry-pi/4b-aarch64"}'
    assert "cortex-a72" in compile_module(parse_module(matmul()), tagged)[0].inspect_source("ll")
