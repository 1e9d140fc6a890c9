"""The contract of a kind of hardware, as far as every process asks it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import ClassVar, TypedDict, TypeVar

P = TypeVar("P")
TargetAttrs = TypedDict(
    "TargetAttrs",
    {
        "kind": str,
        "tag": str,
        "keys": list[str],
        "device": str,
        "host": object,
        "mcpu": str,
        "mtriple": str,
        "mattr": list[str],
        "mabi": str,
        "num-cores": int,
        "arch": str,
        "libs": list[str],
        "max_threads_per_block": int,
        "max_num_threads": int,
        "max_shared_memory_per_block": int,
        "thread_warp_size": int,
        "registers_per_block": int,
        "l2_cache_size_bytes": int,
        "vector-width": int,
        "cl-opt": int,
        "opt-level": int,
    },
    total=False,
)


class TargetKind(ABC):
    """A kind of hardware: what only this hardware knows, in one folder of `kinds/`.

    Every process asks this class, so its module imports nothing but `mallorn.core`. What
    needs a driver, TVM or the graph compiler is a part, in a module of its own, that the
    process loads which needs it (`part`): a subclass of

    - `mallorn.workers.device.device_kind.DeviceKind`: devices, sessions, timers, health
    - `mallorn.workers.tvm.programs.compiler_kind.CompilerKind`: sketches, builds, probes
    - `mallorn.workers.host.builder_kind.BuilderKind`: compilers and linkers of a host
    - `mallorn.core.values.machine.MachineKind`: the speeds to assume before a measurement
    - `mallorn.workers.tvm.network.recipe_kind.RecipeKind`: graph recipes by precision

    The graph compiler has a contract of its own,
    `mallorn.graphc.core.graph_kind.GraphKind`: exports take it along.

    Those base classes describe a CPU that LLVM compiles for; a kind names the parts that
    differ. Installed packages add kinds by entry points in the group ``mallorn.kind``.
    """

    #: What users call it; also the toolchain that builds for it.
    name: ClassVar[str]
    #: Targets of these kinds of TVM may be of this kind.
    tvm_kinds: ClassVar[frozenset[str]]
    #: Classes of its parts as MODULE:CLASS, by the name of their base class.
    parts: ClassVar[Mapping[str, str]] = {}
    #: Names that it adds to seams of the registry, as there.
    names: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    #: Instruction sets of its CPUs as LLVM's triples name them, each as `ld.lld -m` calls it.
    instruction_sets: ClassVar[Mapping[str, str]] = {}
    #: Whether programs run on the cores of their host, and not on an accelerator.
    runs_on_cores: ClassVar[bool] = True
    #: Whether its speed is measured by probes.
    has_probes: ClassVar[bool] = True
    #: Rounds that are open for each device, so that it measures one while others are prepared.
    rounds_per_device: ClassVar[int] = 1
    #: Candidates of a usual round.
    round_size: ClassVar[int] = 16
    #: Job options with other defaults, and that of `evaluator.min_repeat_ms`.
    default_options: ClassVar[Mapping[str, str]] = {}
    min_repeat_ms: ClassVar[int | None] = None
    #: Whether the roller's model drafts candidates, from which a model of lowered programs chooses.
    drafts_candidates: ClassVar[bool] = True
    #: Whether the cache can be emptied before each run.
    empties_cache: ClassVar[bool] = False
    #: How measuring contexts name the cache's state (by `evaluator.flush_l2`) and launches.
    cache_states: ClassVar[Mapping[str, str]] = {"auto": "warm", "on": "cold", "off": "kept"}
    launch_facts: ClassVar[Mapping[str, str]] = {}
    #: Part of the names of its own instructions in traces; empty if it has none.
    instruction_mark: ClassVar[str] = ""
    #: Prefixes of environment variables that its drivers and compilers read.
    environment: ClassVar[Sequence[str]] = ()
    #: Packages, as pip names them, with which stock TVM compiles and runs an export.
    packages: ClassVar[Sequence[str]] = ()
    #: DLPack's name of its devices in C++, and the options that link TVM's runtime for them.
    dlpack_device: ClassVar[str] = "kDLCPU"
    runtime_link_options: ClassVar[str] = ""
    #: A target as users write it, for messages.
    example: ClassVar[str]
    #: Prefix of TVM's names of such devices, which may stand for a target; empty if TVM has none.
    tag_prefix: ClassVar[str] = ""

    @abstractmethod
    def owns(self, attrs: TargetAttrs) -> bool:
        """Return whether a target is of this kind; `attrs` has one of `tvm_kinds`."""

    def complete(self, attrs: TargetAttrs) -> TargetAttrs:
        """Return a target's attributes in canonical form. Raises InvalidTarget."""
        return attrs

    def toolchain(self, attrs: TargetAttrs) -> str:
        """Return the name of the tools that build for a target."""
        return self.name

    def tool_folders(self) -> Iterator[Path]:
        """Yield folders of this host with compilers and libraries that sandboxed processes need."""
        yield from ()

    def part(self, base: type[P]) -> P:
        """Return its part with the given base class; the base class itself without one."""
        location = self.parts.get(base.__name__)
        if location is None:
            return base()
        module, _, name = location.partition(":")
        found = getattr(import_module(module), name)()
        if not isinstance(found, base):
            raise TypeError(f"{location} is no {base.__name__}")
        return found
