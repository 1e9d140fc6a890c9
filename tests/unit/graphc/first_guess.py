"""The schedule that a task gets before anything is measured."""

import re
from typing import Any

import tvm

from mallorn.core.values.machine import assume_typical_cpu
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.workers.tvm.programs.buffer_bounds import check_schedule
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.programs.parsed_program_cache import sum_registers, vector_lanes
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space

GUESSES = 12


def first_guess(function: Any, target: str) -> Any:
    """Return the module of a tensor function under the first valid guess."""
    mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    tir = tvm.ir.save_json(mod)
    machine = assume_typical_cpu(1, vector_lanes(target), sum_registers(target))
    sketches = {sketch.key: sketch for sketch in design_space(tir, target)}
    for guess in ranked([*sketches.values()], nests(tir), machine, GUESSES):
        schedule = rebuild(tir, target, sketches[guess.sketch].trace, guess.decisions)
        if schedule is not None:
            check_schedule(schedule.mod)
            return schedule.mod
    raise AssertionError("no guess is valid")


def schedule_first_guess(mod: Any, target: str, name: re.Pattern[str]) -> Any:
    """Return the module with its tensor functions of such names under first guesses."""
    functions = {
        var: first_guess(function, target)["main"].with_attr("global_symbol", var.name_hint)
        if isinstance(function, tvm.tirx.PrimFunc) and name.search(var.name_hint)
        else function
        for var, function in mod.functions.items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
