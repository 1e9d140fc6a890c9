"""Main module of the child process that makes search spaces, features and libraries."""

import os
from typing import Final

# The compiler runs nothing in parallel, and spinning threads would disturb measurements.
os.environ.setdefault("TVM_NUM_THREADS", "1")

from mallorn.workers.host.code_digest import refuse_if_code_changed
from mallorn.workers.host.linker import prepare_linking
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.hardware_probes import Probe
from mallorn.workers.subprocesses.serve_calls import serve
from mallorn.workers.subprocesses.typed_method import collect_handlers
from mallorn.workers.tvm.compile.build_libraries import build
from mallorn.workers.tvm.programs.compiler_kind import compiler_kind
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import sum_registers, vector_lanes
from mallorn.workers.tvm.sessions.cpu_probes import build_one_probe
from mallorn.workers.tvm.space.lowered_views import compute_lowered_features
from mallorn.workers.tvm.space.rebuild_schedule import full_trace, validate
from mallorn.workers.tvm.space.sketches import design_space


def build_probes(target: str, folder: str) -> list[Probe]:
    return compiler_kind(target).build_probes(target, folder)


ANSWERS: Final = (
    CandidateCompiler.vector_lanes.make_handler(vector_lanes),
    CandidateCompiler.sum_registers.make_handler(sum_registers),
    CandidateCompiler.design_space.make_handler(design_space),
    CandidateCompiler.nests.make_handler(nests),
    CandidateCompiler.validate.make_handler(validate),
    CandidateCompiler.full_trace.make_handler(full_trace),
    CandidateCompiler.compute_lowered_features.make_handler(compute_lowered_features),
    CandidateCompiler.build_probes.make_handler(build_probes),
    CandidateCompiler.build_one_probe.make_handler(build_one_probe),
    CandidateCompiler.build.make_handler(build),
)

if __name__ == "__main__":
    prepare_linking()
    serve(refuse_if_code_changed(collect_handlers(CandidateCompiler, *ANSWERS)))
