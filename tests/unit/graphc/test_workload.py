"""Workload keys: equal for equal programs whatever their names, and only for those."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest
import tvm_ffi
from tvm.script import from_source

from mallorn.workers.tvm.programs.workload_key import (
    normalised_text,
    rename_blocks_canonically,
    structure_key,
    workload_key,
)

PROGRAM = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(lv5: T.Buffer((4, 8), "float32"), out: T.Buffer((4, 8), "float32")):
        T.func_attr({"tirx.noalias": True})
        lv5_sum = T.sblock_alloc_buffer((4,))
        for ax0, k in T.grid(4, 8):
            with T.sblock("lv5_sum"):
                v_ax0, v_k = T.axis.remap("SR", [ax0, k])
                with T.init():
                    lv5_sum[v_ax0] = T.float32(0.0)
                lv5_sum[v_ax0] = lv5_sum[v_ax0] + lv5[v_ax0, v_k]
        for ax0, ax1 in T.grid(4, 8):
            with T.sblock("T_divide"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                out[v_ax0, v_ax1] = lv5[v_ax0, v_ax1] / lv5_sum[v_ax0]
"""
IMPORTS = (
    "from tvm.script import from_source\nfrom mallorn.workers.tvm.programs.workload_key import workload_key"
)
GOLDEN = "e2a86f611e33d58d048dd3b68e672318024247045267bf0439918ee32ad4fccf"


def program(**changes: str) -> Any:
    """The program with whole words replaced."""
    text = PROGRAM
    for old, new in changes.items():
        text = re.sub(rf"\b{old}\b", new, text)
    return from_source(text)


def replaced(old: str, new: str) -> Any:
    assert old in PROGRAM
    return from_source(PROGRAM.replace(old, new))


def test_names_do_not_matter() -> None:
    other = program(lv5="param_0", lv5_sum="T_add_red", T_divide="T_div", ax0="i", v_ax0="vi", out="y", k="r")
    assert other.script() != program().script()
    assert workload_key(other) == workload_key(program())


def test_reusing_a_name_in_a_later_loop_does_not_matter() -> None:
    first, second = PROGRAM.split('T.sblock("T_divide")')
    head, loop = first.rsplit("for ax0, ax1", 1)
    other = head + "for i0, ax1" + loop + 'T.sblock("T_divide")' + second.replace("[ax0, ax1])", "[i0, ax1])")
    assert workload_key(from_source(other)) == workload_key(program())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(4, 8)", "(4, 16)"),
        ("float32(0.0)", "float32(1.0)"),
        (" / lv5_sum[v_ax0]", " * lv5_sum[v_ax0]"),
        ("lv5[v_ax0, v_ax1] /", "lv5[v_ax1 // 2, v_ax1] /"),
        ('"tirx.noalias": True', '"tirx.noalias": True, "layout_free_buffers": [0]'),
        ("lv5[v_ax0, v_ax1] / lv5_sum[v_ax0]", "lv5_sum[v_ax0] / lv5[v_ax0, v_ax1]"),
    ],
)
def test_what_it_computes_matters(old: str, new: str) -> None:
    assert workload_key(replaced(old, new)) != workload_key(program())


def test_structure_forgets_sizes_and_nothing_else() -> None:
    wider = replaced("(4, 8)", "(4, 64)")
    assert structure_key(wider) == structure_key(program())
    assert structure_key(replaced(" / lv5_sum", " * lv5_sum")) != structure_key(program())


def test_canonical_blocks_are_numbered_and_the_program_is_the_same() -> None:
    renamed = rename_blocks_canonically(program())
    assert re.findall(r'T\.sblock\("(\w+)"\)', renamed.script()) == ["root", "b0", "b1"]
    assert tvm_ffi.structural_equal(renamed, program())
    assert workload_key(renamed) == workload_key(program())


def test_no_given_name_is_left() -> None:
    given = {"lv5", "out", "lv5_sum", "ax0", "ax1", "k", "v_ax0", "v_ax1", "v_k", "T_divide"}
    assert not given & set(re.findall(r"\w+", normalised_text(program())))


def test_the_key_is_the_same_in_every_process() -> None:
    """The value is frozen: it stands in every dataset, so changing it needs a migration."""
    done = subprocess.run(
        [sys.executable, "-c", f"{IMPORTS}\nprint(workload_key(from_source({PROGRAM!r})))"],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == workload_key(program()) == GOLDEN
