"""What a stored program or trace may hold: all that TVM knows is allowed or refused by name."""

import json
import re
from typing import Any, Final

import pytest
import tvm
from tvm.ir import Op
from tvm.s_tir.schedule import InstructionKind, Schedule

from benchmarks.fuzzing import seeds
from mallorn.core.errors import Unschedulable
from mallorn.graphc.core.pass_registry import NOT_IN_RECIPES, resolve_pass
from mallorn.graphc.phases import AFTER_SCHEDULES, BEFORE_SCHEDULES
from mallorn.graphc.quant import llvm_byte_dot_products, tile_instructions
from mallorn.workers.tvm.programs.allowed_programs import (
    KINDS,
    OPS,
    TraceRefused,
    check_program,
    check_trace,
    read_trace,
)
from mallorn.workers.tvm.programs.parsed_program_cache import instructions, parse_module
from mallorn.workers.tvm.records.tuning_database import apply_trace
from tests.fixtures.hostile import programs

#: They reach outside of a program, or its memory past its ends, or belong to code that is lowered already.
REFUSED_OPS: Final = frozenset(
    [
        *("te.tensor_load", "prim.vscale", "tirx.TVMBackendAllocWorkspace", "tirx.TVMBackendFreeWorkspace"),
        *("tirx.TVMBackendAnyListMoveFromPackedReturn", "tirx.TVMBackendAnyListSetPackedArg"),
        *("tirx.anylist_getitem", "tirx.anylist_resetitem", "tirx.anylist_setitem_call_cpacked"),
        *("tirx.anylist_setitem_call_packed", "tirx.assume", "tirx.buffer_offset", "tirx.call_ffi_kernel"),
        *("tirx.call_llvm_intrin", "tirx.call_llvm_pure_intrin", "tirx.call_spirv_pure_glsl450"),
        *("tirx.cooperative_tensor_fill", "tirx.cooperative_tensor_load", "tirx.cooperative_tensor_store"),
        *("tirx.cooperative_tensor_multiply_accumulate", "tirx.dma_copy", "tirx.dma_end_group"),
        *("tirx.dma_start_group", "tirx.dma_wait", "tirx.end_profile_intrinsic", "tirx.filter"),
        *("tirx.get_active_lane_mask", "tirx.handle_add_byte_offset", "tirx.ignore_loop_partition"),
        *("tirx.isnullptr", "tirx.lookup_param", "tirx.make_filled_simdgroup_matrix", "tirx.masked_load"),
        *("tirx.masked_store", "tirx.mma_fill", "tirx.mma_fill_legacy", "tirx.mma_store"),
        *("tirx.mma_store_legacy", "tirx.nd_mem_alloc_with_scope", "tirx.prefetch", "tirx.print_buffer"),
        *("tirx.ptr_byte_offset", "tirx.s_tir.cp_async_raw", "tirx.s_tir.ldg32", "tirx.selector"),
        *("tirx.simdgroup_load", "tirx.simdgroup_multiply_accumulate", "tirx.simdgroup_store"),
        *("tirx.start_profile_intrinsic", "tirx.tensormap_encode_tiled", "tirx.texture2d_load"),
        *("tirx.texture2d_store", "tirx.thread_return", "tirx.timer_end_cuda", "tirx.timer_finalize_cuda"),
        *("tirx.timer_init_cuda", "tirx.timer_start_cuda", "tirx.tvm_bmma_sync", "tirx.tvm_call_cpacked"),
        *("tirx.tvm_call_cpacked_lowered", "tirx.tvm_call_packed_lowered", "tirx.tvm_call_trace_packed"),
        "tirx.tvm_call_packed",
        *("tirx.tvm_call_trace_packed_lowered", "tirx.tvm_context_id", "tirx.tvm_fill_fragment"),
        *("tirx.tvm_global_barrier_kinit", "tirx.tvm_kernel_replace_point", "tirx.tvm_load_matrix_sync"),
        *("tirx.tvm_mma_sync", "tirx.tvm_stack_alloca", "tirx.tvm_stack_make_array"),
        *("tirx.tvm_stack_make_shape", "tirx.tvm_static_handle", "tirx.tvm_storage_sync"),
        *("tirx.tvm_store_matrix_sync", "tirx.tvm_struct_get", "tirx.tvm_struct_set"),
        *("tirx.tvm_thread_allreduce", "tirx.tvm_thread_invariant", "tirx.tvm_throw_last_error"),
        *("tirx.tvm_tuple", "tirx.tvm_warp_activemask", "tirx.tvm_warp_shuffle"),
        *("tirx.tvm_warp_shuffle_down", "tirx.tvm_warp_shuffle_up", "tirx.tvm_warp_shuffle_xor"),
        "tirx.undef",
    ]
)
#: Operators of one kind of device each, and of graphs.
REFUSED_FAMILIES: Final = (
    *("relax.", "tirx.cuda.", "tirx.metal.", "tirx.nki.", "tirx.nvshmem.", "tirx.ptx.", "tirx.ptx_legacy."),
    *("tirx.tile.", "tirx.webgpu."),
)
#: They change what a program computes, or no rule of a space uses them.
REFUSED_KINDS: Final = frozenset(
    [
        *("AnnotateBufferAccess", "CacheIndex", "CacheInplace", "DecomposePadding", "FuseReductionEpilogue"),
        *("LoopPartition", "Merge", "ReindexCacheRead", "ReindexCacheWrite"),
        *("ReorderBlockIterVar", "RollingBuffer"),
        *("UnsafeHideBufferAccess", "UnsafeSetDType"),
    ]
)
#: Methods of a schedule that leave no instruction in its trace.
NO_INSTRUCTIONS: Final = frozenset(
    [
        *("can_decompose_padding", "copy", "fork_seed", "func_working_on", "get", "get_sref", "mod"),
        *("remove_rv", "same_as", "seed", "show", "state", "trace", "work_on"),
    ]
)


def kinds_of_tvm() -> set[str]:
    """The kinds of instructions behind the methods of a schedule."""
    spelled = {"sblock": "SBlock", "dtype": "DType", "reindex": "Reindex", "rfactor": "RFactor"}
    found = set()
    for method in (name for name in dir(Schedule) if name[0].islower() and not name.endswith("_")):
        words = method.split("_")
        kind = "".join(spelled.get(word, word.capitalize()) for word in words)
        kind = "ReIndex" if method == "reindex" else kind
        try:
            found.add(str(InstructionKind.get(kind).name))
        except AttributeError:
            assert method in NO_INSTRUCTIONS, method
    return found


def test_every_operator_of_tvm_is_allowed_or_refused_by_name() -> None:
    known = {str(name) for name in Op.list_op_names()}
    left = {name for name in known - OPS - REFUSED_OPS if not name.startswith(REFUSED_FAMILIES)}
    assert left == set(), "new operators of TVM: decide for each"
    assert known >= OPS
    assert not OPS & REFUSED_OPS


def test_every_instruction_of_tvm_is_allowed_or_refused_by_name() -> None:
    known = kinds_of_tvm()
    assert known == KINDS | REFUSED_KINDS
    assert not KINDS & REFUSED_KINDS


@pytest.mark.parametrize("kind", sorted(REFUSED_KINDS))
def test_a_trace_with_an_instruction_that_no_rule_needs_is_refused(kind: str) -> None:
    with pytest.raises(TraceRefused, match=f"the instruction {kind} is not allowed"):
        check_trace([[kind, ["b0"], [], []]])


@pytest.mark.parametrize("operator", sorted(REFUSED_OPS))
def test_a_program_with_an_operator_that_reaches_outside_is_refused(operator: str) -> None:
    with pytest.raises(Unschedulable, match=re.escape(f"the program calls {operator}, which is not allowed")):
        check_program(dict(programs.programs_with(operator))["system"].decode())


def test_what_was_measured_before_is_allowed() -> None:
    for program in seeds.programs():
        check_program(program.decode())
    for trace in seeds.traces():
        read_trace(trace.decode())


def importing(text: str) -> str:
    """A program that imports a function in LLVM's words."""
    graph = json.loads(seeds.programs()[0])
    programs.import_text(graph, text)
    return json.dumps(graph)


@pytest.mark.parametrize("by", llvm_byte_dot_products.INSTRUCTIONS.values(), ids=lambda by: by.steps[0])
@pytest.mark.parametrize(
    "write", [llvm_byte_dot_products.build_input_quantizer, llvm_byte_dot_products.build_block_dot_product]
)
def test_a_function_that_our_passes_write_is_allowed_and_one_with_a_word_more_is_not(
    by: Any, write: Any
) -> None:
    text = write(by, 32, 4).text
    check_program(importing(text))
    with pytest.raises(Unschedulable, match="LLVM code that no pass"):
        check_program(importing(f"{text}\n{programs.LLVM}"))


def test_tiles_are_allowed() -> None:
    for by in tile_instructions.INSTRUCTIONS:
        check_program(importing(by.text))


@pytest.mark.parametrize(("name", "program"), list(programs.programs())[::4])
def test_a_hostile_program_is_refused_before_tvm_reads_it(
    name: str, program: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tvm.ir, "load_json", pytest.fail)
    with pytest.raises(Unschedulable, match="a stored program is refused: "):
        parse_module(program.decode(errors="replace"))


@pytest.mark.parametrize(("name", "trace"), list(programs.traces())[::4])
def test_a_hostile_trace_is_refused_before_tvm_reads_it(name: str, trace: bytes) -> None:
    with pytest.raises(TraceRefused, match="a trace is refused: "):
        instructions(seeds.programs()[0].decode(), trace.decode())


def test_a_record_with_a_decision_for_nothing_is_refused() -> None:
    steps = json.loads(seeds.traces()[0])
    with pytest.raises(TraceRefused, match="a decision names an instruction that does not exist"):
        apply_trace(parse_module(seeds.programs()[0].decode()), [steps, [[10**6, [1]]]])


@pytest.mark.parametrize("name", sorted(NOT_IN_RECIPES))
def test_a_recipe_names_no_pass_that_reads_schedules_or_runs_what_a_module_names(name: str) -> None:
    assert name.rpartition(".")[2] in dir(tvm.relax.transform)
    with pytest.raises(ValueError, match="is not a graph pass of"):
        resolve_pass(name)


@pytest.mark.parametrize(
    "name",
    [
        "relax.transform.transform.inspect",
        "relax.transform.legalize_ops.inspect_op.op",
        "s_tir.dlight.benchmark.extract.extract_from_relax",
        "relax.backend.cuda.flashinfer.gen_flashinfer_prefill_module",
        "relax.backend.metal.coreml.coreml_compiler",
    ],
)
def test_a_recipe_names_nothing_that_is_no_pass(name: str) -> None:
    with pytest.raises(ValueError, match="is not a graph pass of"):
        resolve_pass(name)


def test_the_passes_of_our_recipes_may_be_named() -> None:
    recipes = (*BEFORE_SCHEDULES.values(), *AFTER_SCHEDULES.values())
    names = {step["pass"] for recipe in recipes for phase in recipe for step in phase.steps}
    assert all(map(resolve_pass, names | {"s_tir.dlight.gpu.Matmul"}))
