"""The compiler child: sketches, validity, traces and libraries of candidates."""

import os
from typing import Final

# A compiler runs nothing in parallel, and threads that spin would disturb what is being measured.
os.environ.setdefault("TVM_NUM_THREADS", "1")

from workers.interfaces.candidate_compiler import Compiler
from workers.subprocesses.serve_calls import serve
from workers.subprocesses.typed_method import serving
from workers.tvm.build_libraries import build
from workers.tvm.cpu_probes import build_one_probe, build_probes
from workers.tvm.linker import prepare_linking
from workers.tvm.loop_nests import nests
from workers.tvm.lowered_views import lowered
from workers.tvm.program_cache import vector_lanes
from workers.tvm.rebuild_schedule import full_trace, validate
from workers.tvm.sketches import design_space

ANSWERS: Final = (
    Compiler.vector_lanes.by(vector_lanes),
    Compiler.design_space.by(design_space),
    Compiler.nests.by(nests),
    Compiler.validate.by(validate),
    Compiler.full_trace.by(full_trace),
    Compiler.lowered.by(lowered),
    Compiler.build_probes.by(build_probes),
    Compiler.build_one_probe.by(build_one_probe),
    Compiler.build.by(build),
)

if __name__ == "__main__":
    prepare_linking()
    serve(serving(Compiler, *ANSWERS))
