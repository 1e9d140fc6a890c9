"""The conformance kit of kinds of hardware. It needs no device: parts must answer without one."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeVar, cast, get_args

import pytest
from packaging.requirements import Requirement as PipRequirement

from mallorn.core.errors import HostFault, InvalidRequest, InvalidTarget
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import REGISTRY, list_kinds
from mallorn.core.target_kind import TargetAttrs, TargetKind
from mallorn.core.targets import parse_target
from mallorn.core.values.machine import MachineKind
from mallorn.graphc.core.graph_kind import graph_kind
from mallorn.graphc.export.build_library import cross_compiler
from mallorn.workers.device.device_kind import AcceleratorLoad, DeviceKind
from mallorn.workers.host.builder_kind import BuilderKind
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.process.toolchains import missing_tools, other_instruction_sets
from mallorn.workers.tvm.compile.compile_model import compile_object
from mallorn.workers.tvm.network.graph_recipes import recipe_for
from mallorn.workers.tvm.network.recipe_kind import RecipeKind
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target

#: Modules of the base classes of parts, which a kind names in `parts`.
PARTS: Final = {
    "MachineKind": "mallorn.core.values.machine",
    "DeviceKind": "mallorn.workers.device.device_kind",
    "BuilderKind": "mallorn.workers.host.builder_kind",
    "RecipeKind": "mallorn.workers.tvm.network.recipe_kind",
    "CompilerKind": "mallorn.workers.tvm.programs.compiler_kind",
}
#: What the module of a kind must not load, since every process imports it.
HEAVY: Final = re.compile(
    r"(tvm|torch|numpy|onnx|mallorn\.(workers|graphc|searchers|costmodels|db|services|cli))\b"
)
LEVELS: Final = frozenset({"cl-opt", "opt-level"})  # numbers that may be 0
NONSENSE: Final = "nonsense"
ANY_CPU: Final = '{"kind":"c","mtriple":"x86_64-linux-gnu","num-cores":2}'
LOADED: Final = """
import json, sys
from importlib import import_module
from mallorn.core.targets import parse_target
import_module(sys.argv[1])
parse_target(sys.argv[2]).toolchain
print(json.dumps(sorted(sys.modules)))
"""
T = TypeVar("T")


class TargetKindTestCase:
    """Give the fixture `kind`: an instance of a kind that is installed. Where the kind names no
    part, the base class is tested for it."""

    @pytest.fixture
    def kind(self) -> TargetKind:
        raise NotImplementedError

    def test_it_is_found_under_its_name(self, kind: TargetKind) -> None:
        assert re.fullmatch(r"[a-z0-9_]+", kind.name)
        assert [type(each) for each in list_kinds() if each.name == kind.name] == [type(kind)]

    def test_its_example_is_a_target_of_it_and_its_canonical_form_stays(self, kind: TargetKind) -> None:
        target = parse_target(kind.example)
        assert type(target.hardware) is type(kind)
        assert target.kind in kind.tvm_kinds
        assert parse_target(target.text) == target
        assert parse_target(target.attrs) == target

    def test_targets_of_other_kinds_are_not_its_own(self, kind: TargetKind) -> None:
        for other in list_kinds():
            attrs = parse_target(other.example).attrs
            if other.name != kind.name and attrs["kind"] in kind.tvm_kinds:
                assert not kind.owns(attrs), f"{kind.name} takes the targets of {other.name}"

    def test_a_wrong_attribute_is_refused_by_its_name_with_a_remedy_or_leaves_a_target(
        self, kind: TargetKind
    ) -> None:
        for name, attrs in altered(parse_target(kind.example).attrs):
            target = answer_or_refusal(partial(parse_target, attrs), (name, str(attrs.get(name))))
            assert target is None or parse_target(target.text) == target, f"{name}: its form does not stay"

    def test_any_target_of_its_kinds_of_tvm_is_its_own_or_not(self, kind: TargetKind) -> None:
        bare = [{"kind": name} for name in sorted(kind.tvm_kinds)]
        for attrs in (*bare, *(attrs for _, attrs in altered(parse_target(kind.example).attrs))):
            if attrs.get("kind") in sorted(kind.tvm_kinds):
                assert isinstance(kind.owns(cast(TargetAttrs, attrs)), bool)

    def test_limits_are_positive(self, kind: TargetKind) -> None:
        limits = {k: value for k, value in parse_target(kind.example).attrs.items() if k not in LEVELS}
        assert [name for name, value in limits.items() if isinstance(value, int) and value <= 0] == []

    def test_answers_depend_on_the_target_alone(self, kind: TargetKind) -> None:
        attrs = parse_target(kind.example).attrs
        first, given = answers(kind, attrs), json.loads(kind.example)
        for _, others in altered(attrs):
            answer_or_refusal(partial(parse_target, others))
        assert answers(kind, attrs) == first, "another target changed the answers"
        assert answers(type(kind)(), attrs) == first, "another instance answers otherwise"
        assert json.loads(run_apart(print_answers, kind)) == first, "another process answers otherwise"
        kind.complete(given)
        assert given == json.loads(kind.example), "a method changed the attributes that it was given"

    def test_its_figures_and_names_are_usable(self, kind: TargetKind) -> None:
        assert kind.rounds_per_device >= 1
        assert kind.round_size >= 1
        assert kind.min_repeat_ms is None or kind.min_repeat_ms > 0
        assert all(kind.environment), "an empty prefix lets every variable into the sandbox"
        assert all(PipRequirement(package).name for package in kind.packages)
        assert kind.dlpack_device.startswith("kDL")
        assert (kind.dlpack_device == "kDLCPU") == kind.runs_on_cores
        assert all(option.startswith("-") for option in kind.runtime_link_options.split())
        options = JobOptions().with_target_defaults(parse_target(kind.example))
        assert JobOptions.model_validate(options.model_dump()) == options
        assert kind.default_options.keys() <= JobOptions.model_fields.keys()

    def test_a_tag_that_it_does_not_know_is_refused(self, kind: TargetKind) -> None:
        if kind.tag_prefix:
            with pytest.raises(InvalidTarget, match=NONSENSE) as refused:
                parse_target(kind.tag_prefix + NONSENSE)
            assert refused.value.hint

    def test_folders_of_tools_exist(self, kind: TargetKind) -> None:
        assert [folder for folder in kind.tool_folders() if not Path(folder).is_dir()] == []

    def test_every_part_that_it_names_loads_and_is_of_its_class(self, kind: TargetKind) -> None:
        assert kind.parts.keys() <= PARTS.keys()
        for name, module in PARTS.items():
            base = getattr(import_module(module), name)
            part = kind.part(base)
            assert isinstance(part, base)
            assert (type(part) is base) == (name not in kind.parts)

    def test_every_name_that_it_adds_to_a_seam_is_new_and_loads(self, kind: TargetKind) -> None:
        others = [REGISTRY, *(each.names for each in list_kinds() if each.name != kind.name)]
        for seam, places in kind.names.items():
            for name, place in places.items():
                assert not any(name in names.get(seam, {}) for names in others), f"{seam} {name} exists"
                module, _, attribute = place.partition(":")
                assert hasattr(import_module(module), attribute), place

    def test_a_target_of_another_kind_loads_none_of_its_parts(self, kind: TargetKind) -> None:
        modules = set(json.loads(run_program(LOADED, type(kind).__module__, ANY_CPU)))
        places = [*kind.parts.values(), *(place for names in kind.names.values() for place in names.values())]
        assert modules & {place.partition(":")[0] for place in places} == set()
        assert [name for name in modules if HEAVY.match(name)] == [], "its module loads more than it may"

    def test_the_machine_that_it_assumes_is_a_function_of_the_target(self, kind: TargetKind) -> None:
        target, lanes = parse_target(kind.example), 8
        first, second = (kind.part(MachineKind).assume_machine(target.attrs, lanes, 16) for _ in range(2))
        assert first == second
        assert not first.measured
        assert first.gpu != kind.runs_on_cores
        assert first.gflops
        assert not kind.runs_on_cores or (first.cores, first.lanes) == (target.num_cores, lanes)

    def test_what_a_host_lacks_to_build_or_measure_is_named_with_a_command(self, kind: TargetKind) -> None:
        part = kind.part(BuilderKind)
        for has_device in (False, True):
            needs = list(part.requirements(has_device))
            assert list(part.requirements(has_device)) == needs
            assert all(need.name and need.words for need in needs)
            assert [need.words for need in needs if not (need.is_met or need.command)] == [], "no command"
        needs = [need for need in part.requirements(has_device=False) if need.is_necessary]
        lacks, missing = [need.command for need in needs if not need.is_met], part.missing_tools()
        assert bool(missing) == bool(lacks), "workers and `mallorn check` disagree on what is missing"
        assert all(command in missing for command in lacks), "workers do not name the command"

    def test_every_host_says_what_it_lacks_for_its_toolchain(self, kind: TargetKind) -> None:
        toolchain = parse_target(kind.example).toolchain
        assert toolchain in missing_tools(), f"no host links for {toolchain}: name it in `instruction_sets`"

    def test_zig_compiles_c_for_its_cpus_where_it_is_installed(self, kind: TargetKind) -> None:
        toolchain = parse_target(kind.example).toolchain
        if kind.runs_on_cores and other_instruction_sets().get(toolchain) == "":
            command = cross_compiler(as_tvm_target(parse_target(kind.example).text))
            assert compile_object("int one(void) { return 1; }", (), tuple(command)), command

    def test_compilers_are_programs_with_names_of_their_own(self, kind: TargetKind) -> None:
        for name, (program, line) in kind.part(BuilderKind).tool_versions().items():
            assert name not in ("compiler", "linker"), "every host has these"
            assert os.access(program, os.X_OK), program
            assert isinstance(line, int)

    def test_each_recipe_has_a_variant_or_is_refused_with_a_remedy(self, kind: TargetKind) -> None:
        target, part = parse_target(kind.example), kind.part(RecipeKind)
        for name in REGISTRY["recipe"]:
            variant = recipe_for(name, target).name
            assert variant == part.in_float32(name) == part.in_float32(variant)
        for precision in get_args(JobOptions.model_fields["precision"].annotation):
            answer_or_refusal(partial(recipe_for, "tuned", target, precision))

    def test_devices_answer_without_the_hardware(self, kind: TargetKind) -> None:
        run_apart(check_device, kind)

    def test_the_graph_compiler_finds_its_passes_and_rules(self, kind: TargetKind) -> None:
        run_apart(check_graphs, kind)

    def test_sketches_are_the_same_in_every_process(self, kind: TargetKind, tmp_path: Path) -> None:
        from tests.unit.tvm_space.programs import matmul  # loads TVM

        target, tir, found = parse_target(kind.example).text, matmul(), []
        for _ in range(2):
            with CandidateCompiler(room=tmp_path) as compiler:
                lanes, sums = compiler.vector_lanes(target), compiler.sum_registers(target)
                sketches = compiler.design_space(tir, target)
                found.append((lanes, sums, sketches))
        assert found[0] == found[1]
        assert lanes >= 1
        assert sums >= 1 or not kind.runs_on_cores
        assert len({sketch.key for sketch in sketches}) == len(sketches) > 0


def answers(kind: TargetKind, attrs: TargetAttrs) -> Any:
    """What a kind says of a target and of itself, as JSON."""
    completed = kind.complete(attrs)
    assert kind.complete(completed) == completed
    settings = {name: getattr(kind, name) for name in TargetKind.__annotations__}
    folders = list(map(str, kind.tool_folders()))
    said = (kind.owns(attrs), kind.toolchain(attrs), completed, folders, settings)
    return json.loads(json.dumps(said, default=sorted))


def print_answers(kind: TargetKind) -> None:
    print(json.dumps(answers(kind, parse_target(kind.example).attrs)))


def altered(attrs: TargetAttrs) -> Iterator[tuple[str, dict[str, Any]]]:
    """Attributes of a target, each absent or replaced by values that it cannot have."""
    for name, value in attrs.items():
        rest = {key: each for key, each in attrs.items() if key != name}
        yield name, rest
        others: Sequence[object] = (NONSENSE, [NONSENSE], 0, -1, None)
        yield from ((name, {**rest, name: other}) for other in others if other != value)


def run_apart(check: Callable[[TargetKind], None], kind: TargetKind) -> str:
    """Run a check in a process of its own, which may load drivers and TVM; return what it prints."""
    cls = type(kind)
    imports = f"from {__name__} import {check.__name__}; from {cls.__module__} import {cls.__qualname__}"
    return run_program(f"{imports}; {check.__name__}({cls.__qualname__}())")


def run_program(program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_device(kind: TargetKind) -> None:
    """Ask the part of devices everything; most hosts have none."""
    target, part = parse_target(kind.example), kind.part(DeviceKind)
    found = answer_or_refusal(part.accelerators) or ()
    chosen = answer_or_refusal(partial(part.choose, found, ""))
    for answer in (*found, chosen, answer_or_refusal(part.first), answer_or_refusal(part.own_target)):
        assert answer is None or not kind.runs_on_cores, "a CPU is no accelerator"
    assert answer_or_refusal(partial(part.choose, (), NONSENSE)) is None, "it chooses what is not there"
    assert isinstance(part.why_unsupported(target), str)
    assert isinstance(part.fault(), str)
    assert all(Path(path).exists() for path, _ in part.paths(""))
    assert part.explain_error("Check failed: an error of no driver") is None
    if meter := part.meter(""):
        assert not kind.runs_on_cores, "the host has a CPU's meters"
        assert isinstance(meter.read_load(), AcceleratorLoad)
        assert isinstance(meter.power_limit(), str)
        assert meter.count_uncorrected_errors() >= 0
    answer_or_refusal(part.load_runtime)
    assert part.fault_hint or not part.breaks_sessions, "no command tells more of a fault"
    assert not kind.empties_cache or type(part).cache_clock is not DeviceKind.cache_clock


def check_graphs(kind: TargetKind) -> None:
    from mallorn.graphc.core.pass_registry import resolve_pass

    for tvm_kind in kind.tvm_kinds:
        part = graph_kind(tvm_kind)
        assert all(map(resolve_pass, (*part.passes, *part.replaced_rules)))
        assert all(isinstance(options, Mapping) for options in (part.pass_options, part.build_options))
        part.prepare_stock_tvm()
        part.load_instructions("[]")


def answer_or_refusal(ask: Callable[[], T], names: Sequence[str] = ("",)) -> T | None:
    """Return an answer, or None if it is refused: for a reason that has one of `names`, with a remedy."""
    try:
        return ask()
    except (InvalidRequest, HostFault) as error:
        refused = error
    words = f"{refused.message} {refused.hint}"
    assert refused.message, "refused without a reason"
    assert refused.hint, f"refused without a remedy: {refused.message}"
    assert any(name in words for name in names), f"none of {names} is named: {words}"
    return None
