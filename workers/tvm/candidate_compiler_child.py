"""Main module of the child process that makes search spaces, features and libraries."""

import os
from typing import Final

# The compiler runs nothing in parallel, and spinning threads would disturb measurements.
os.environ.setdefault("TVM_NUM_THREADS", "1")

from workers.interfaces.candidate_compiler import CandidateCompiler
from workers.subprocesses.serve_calls import serve
from workers.subprocesses.typed_method import serving
from workers.tvm.build_libraries import build
from workers.tvm.code_digest import same_code
from workers.tvm.cpu_probes import build_one_probe, build_probes
from workers.tvm.linker import prepare_linking
from workers.tvm.loop_nests import nests
from workers.tvm.lowered_views import lowered
from workers.tvm.parsed_program_cache import vector_lanes
from workers.tvm.rebuild_schedule import full_trace, validate
from workers.tvm.sketches import design_space

ANSWERS: Final = (
    CandidateCompiler.vector_lanes.by(vector_lanes),
    CandidateCompiler.design_space.by(design_space),
    CandidateCompiler.nests.by(nests),
    CandidateCompiler.validate.by(validate),
    CandidateCompiler.full_trace.by(full_trace),
    CandidateCompiler.lowered.by(lowered),
    CandidateCompiler.build_probes.by(build_probes),
    CandidateCompiler.build_one_probe.by(build_one_probe),
    CandidateCompiler.build.by(build),
)

if __name__ == "__main__":
    prepare_linking()
    serve(same_code(serving(CandidateCompiler, *ANSWERS)))
