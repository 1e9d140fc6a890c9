"""The compiler child: sketches, validity, traces and libraries of candidates."""

import os
from typing import Final

# A compiler runs nothing in parallel, and threads that spin would disturb what is being measured.
os.environ.setdefault("TVM_NUM_THREADS", "1")

from workers.children.method import serving
from workers.children.serve import serve
from workers.faces.compiler import Compiler
from workers.tvm.build import build
from workers.tvm.linker import prepare_linking
from workers.tvm.lowered import lowered
from workers.tvm.nests import nests
from workers.tvm.probes import build_one_probe, build_probes
from workers.tvm.programs import vector_lanes
from workers.tvm.rebuild import full_trace, validate
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
