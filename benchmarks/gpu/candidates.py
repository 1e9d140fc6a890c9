"""Build a task's kernels: python -m benchmarks.gpu.candidates TASK TARGET FOLDER CHANCE [FIRST]

The first guess, that of each of our own kinds of sketches, and CHANCE random candidates come from the
product's space of the target, DLight's schedule from TVM. For Hopper GPUs one task has the prototype by
`wgmma`, too. The index gets a line per kernel, with ptxas's figures or the error. With FIRST, only the
first FIRST of the random candidates are built.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from benchmarks.gpu import wgmma_prototype
from benchmarks.gpu.cells import Cells, Row, Value
from benchmarks.gpu.kernel_index import (
    CHANCE,
    COMPLETE,
    DLIGHT,
    FIRST_GUESS,
    INDEX,
    OWN_KIND,
    WGMMA,
    WGMMA_ARCH,
)
from benchmarks.gpu.programs import module_of
from benchmarks.gpu.tasks import BY_NAME, WGMMA_TASK, Task
from mallorn.core.targets import Target
from mallorn.graphc.export.code_generation import compile_to_library
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.host.linker import link_shared
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.measurer_interface import Program
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target
from mallorn.workers.tvm.space.rebuild_schedule import rebuild

SEED: Final = 0
_DRAWS: Final = 8  # samples per requested candidate, since many are invalid


def main() -> None:
    """Build all kernels that the index lacks; the parent may end this process at any time."""
    task, target, folder = BY_NAME[sys.argv[1]], Target(sys.argv[2]), Path(sys.argv[3])
    cells = Cells(folder / INDEX)
    tir = tvm.ir.save_json(module_of(task))
    with CandidateCompiler() as compiler:
        for cell, means, schedule in _schedules(task, tir, target, compiler, *map(int, sys.argv[4:])):
            file = folder / f"{cell.rpartition('/')[2].replace(' ', '-')}.so"
            about: Row = {"task": task.name, "means": means}
            cells.measure(cell, partial(_build, about, schedule, file, target))
    (folder / COMPLETE).write_text(" ".join(sys.argv[4:]))


def compile_to(module: Any, target: str, file: Path) -> Value:
    """Write a library of a scheduled module; return ptxas's kernel figures, if for a GPU."""
    parsed, options = parse_tvm_target(target), {"tirx.disable_assert": True}
    if parsed.kind.name != "cuda":
        library, figures = compile_to_library(module, parsed, **options), []
    else:
        from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda

        built = compile_for_cuda(module, parsed, **options)
        library, figures = built.library, [asdict(kernel) for kernel in built.kernels]
    library.export_library(str(file), fcompile=link_shared)
    return figures


def _schedules(
    task: Task,
    tir: str,
    target: Target,
    compiler: CandidateCompiler,
    chance: int,
    first_of_chance: int | None = None,
) -> Iterator[tuple[str, str, Callable[[], tuple[Any, Row]]]]:
    """Yield each kernel's cell, its means, and a call that returns module and facts."""
    sketches, program = compiler.design_space(tir, target.text), Program("", tir, Arguments(()), 1.0)
    spaces = {
        kind: TvmSpace(found, program, target, (), compiler)
        for kind, found in {"": sketches, **_by_kind(sketches)}.items()
    }
    space = spaces.pop("")

    def module(candidate: Candidate) -> tuple[Any, Row]:
        sketch = space.by_key[candidate.sketch]
        schedule = rebuild(tir, target.text, sketch.trace, candidate.decisions)
        if schedule is None:
            raise ValueError("the candidate is invalid")
        facts: Row = {"sketch": sketch.ordinal, "decisions": list(map(int, candidate.decisions))}
        return schedule.mod, facts | {"kind": _kind(sketch)}

    first = space.likeliest(1)
    yield f"{task.name}/{FIRST_GUESS}", FIRST_GUESS, lambda: module(_only(first))
    for kind, of_kind in spaces.items():
        if (guess := of_kind.likeliest(1)) != first:
            yield f"{task.name}/{kind}", OWN_KIND, lambda guess=guess: module(_only(guess))
    if task.name == WGMMA_TASK and target.attrs.get("arch") == WGMMA_ARCH:
        yield f"{task.name}/{WGMMA}", WGMMA, lambda: (wgmma_prototype.product(*task.sizes), {})
    if not target.runs_on_cores:
        yield f"{task.name}/{DLIGHT}", DLIGHT, lambda: (_dlight(tir, target), {})
    for number, candidate in enumerate(islice(_by_chance(space, chance), first_of_chance)):
        yield f"{task.name}/{CHANCE} {number}", CHANCE, lambda candidate=candidate: module(candidate)


def _kind(sketch: Sketch) -> str:
    """Return which of our own kinds a sketch is of; empty if of none."""
    return str(sketch.facts.get("kind", ""))


def _by_kind(sketches: Sequence[Sketch]) -> dict[str, list[Sketch]]:
    """Return the sketches of each of our own kinds."""
    kinds: dict[str, list[Sketch]] = {}
    for sketch in sketches:
        if kind := _kind(sketch):
            kinds.setdefault(kind, []).append(sketch)
    return kinds


def _only(candidates: list[Candidate]) -> Candidate:
    if not candidates:
        raise ValueError("no candidate of the space is valid")
    return candidates[0]


def _by_chance(space: TvmSpace, count: int) -> Iterator[Candidate]:
    """Yield random valid candidates, of sketches with decisions if there are any."""
    drawn = list(dict.fromkeys(space.sample(np.random.default_rng(SEED), _DRAWS * count)))
    valid = (each for each in [each for each in drawn if each.decisions] or drawn if all(space.valid([each])))
    yield from islice(valid, count)


def _dlight(tir: str, target: Target) -> Any:
    from mallorn.kinds.cuda.compiler.cuda_rules import dlight_schedule

    schedule = dlight_schedule(tvm.ir.load_json(tir), parse_tvm_target(target.text))
    if schedule is None:
        raise ValueError("DLight has no schedule")
    return schedule.mod


def _build(about: Row, make: Callable[[], tuple[Any, Row]], file: Path, target: Target) -> Row:
    started_sec = time.monotonic()
    module, facts = make()
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    figures = compile_to(module, target.text, file)
    built: Row = {"file": file.name, "bytes": file.stat().st_size, "kernels": figures}
    built["tensor_cores"] = "mma" in str(module)
    return about | facts | built | {"build_sec": round(time.monotonic() - started_sec, 2)}


if __name__ == "__main__":
    main()
