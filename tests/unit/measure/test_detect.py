"""What this host is, and which target `local` stands for."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mallorn.core.errors import InvalidTarget
from mallorn.graphc.export.cpu_features import ARM
from mallorn.workers.device import cpu_speed_limits, detect_host
from mallorn.workers.device.cpu_speed_limits import cpu_info
from mallorn.workers.device.detect_host import available_cores, detect_target, read_host_facts
from tests.fixtures.control_groups import V2_MOUNT, MadeUp

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Some CPU
flags\t\t: {flags}

processor\t: 1
vendor_id\t: another
"""
V2 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
V3 = f"{V2} avx2 bmi1 bmi2 f16c fma movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Has this host's processor be one with these flags, and LLVM answer as a program does."""

    def become(program: str, flags: str) -> None:
        monkeypatch.setattr(detect_host, "LLVM_CPU_PROGRAM", program)
        monkeypatch.setattr(detect_host, "cpu_info", lambda: cpu_info(CPUINFO.format(flags=flags)))
        monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "n", "r", "v", "x86_64")))

    return become


def test_two_processes_of_one_machine_have_one_fingerprint() -> None:
    program = "from mallorn.workers.device.detect_host import read_host_facts; print(read_host_facts())"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(read_host_facts())


def test_the_host_class_tells_core_counts_and_cpus_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = read_host_facts()["host_class"]
    monkeypatch.setattr(detect_host, "available_cores", lambda: 77)
    assert "77c" in read_host_facts()["host_class"]
    monkeypatch.undo()
    monkeypatch.setattr(detect_host, "_cached_cpu_info", lambda: {"model name": "Other CPU"})
    assert read_host_facts()["host_class"] != ours
    monkeypatch.undo()
    assert read_host_facts()["host_class"] == ours


def test_the_local_target_names_cpu_and_cores() -> None:
    target = detect_target()
    assert target.kind == "llvm"
    assert target.attrs["mcpu"]
    assert target.num_cores == available_cores()


def test_a_runtime_only_process_finds_the_same_target(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = detect_target()
    monkeypatch.setenv("TVM_USE_RUNTIME_LIB", "1")
    assert detect_target() == ours


@pytest.mark.parametrize(("flags", "level"), [(V4, "x86-64-v4"), (V3, "x86-64-v3"), (V2, "x86-64-v2")])
def test_without_the_compiler_the_instruction_set_level_is_used(
    flags: str, level: str, cpu: Callable[[str, str], None]
) -> None:
    cpu("raise SystemExit(1)", flags)
    assert detect_target().attrs["mcpu"] == level


@pytest.mark.parametrize(
    ("flags", "mcpu"), [(V4, "skylake-avx512"), (V3, "x86-64-v3"), ("", "skylake-avx512")]
)
def test_a_cpu_whose_hypervisor_hides_instructions_is_what_is_left_of_it(
    flags: str, mcpu: str, cpu: Callable[[str, str], None]
) -> None:
    cpu(f"print('skylake-avx512 {V4} adx prefer-256-bit')", flags)
    assert detect_target().attrs["mcpu"] == mcpu


def test_a_cpu_below_every_level_must_be_named(cpu: Callable[[str, str], None]) -> None:
    cpu("raise SystemExit(1)", "sse2")
    with pytest.raises(InvalidTarget):
        detect_target()


def test_only_the_first_processor_is_read() -> None:
    assert cpu_info(CPUINFO.format(flags=V2))["vendor_id"] == "GenuineIntel"


CPUINFO_FILE = Path("/proc/cpuinfo")


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, set[str]], None]:
    """Has this machine be an AArch64 one with this /proc/cpuinfo, whose kernel grants these features."""

    read = Path.read_text

    def become(text: str, features: set[str]) -> None:
        places = {cpu_speed_limits._HWCAPS[name] for name in features}
        monkeypatch.setattr(cpu_speed_limits, "_has_hwcap", lambda *place: place in places)
        monkeypatch.setattr(Path, "read_text", lambda file: text if file == CPUINFO_FILE else read(file))
        monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "n", "r", "v", "aarch64")))

    return become


BOARD = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n"


def test_the_features_of_an_arm_cpu_are_those_that_the_kernel_grants(
    arm: Callable[[str, set[str]], None],
) -> None:
    arm(BOARD, {"asimd", "asimddp"})
    assert cpu_info() == {
        "processor": "0", "CPU implementer": "0x41", "CPU part": "0xd0b", "Features": "asimd asimddp",
    }  # fmt: skip


def test_an_emulated_process_leaves_its_hosts_cpu_out(arm: Callable[[str, set[str]], None]) -> None:
    arm(CPUINFO.format(flags=V2), {"asimd"})
    assert cpu_info() == {"Features": "asimd"}


def test_every_feature_that_a_target_may_need_is_looked_up_in_the_kernels_answer() -> None:
    assert set(ARM.values()) <= cpu_speed_limits._HWCAPS.keys()


@pytest.mark.parametrize(
    ("answer", "mcpu", "mattr"),
    [
        ("cortex-a76 neon fullfp16 dotprod lse", "cortex-a76", None),
        ("neoverse-v1 neon fullfp16 dotprod lse i8mm sve", "neoverse-v1", ["-i8mm", "-sve"]),
        ("generic neon", "generic", ["+neon", "+fullfp16", "+dotprod", "+lse"]),
    ],
)
def test_the_target_of_a_board_names_its_architecture_and_the_kernels_features(
    arm: Callable[[str, set[str]], None],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    mcpu: str,
    mattr: list[str] | None,
) -> None:
    arm(BOARD, {"asimd", "asimdhp", "asimddp", "atomics"})
    done = subprocess.CompletedProcess([], 0, stdout=answer)
    monkeypatch.setattr(detect_host, "run_with_tvm", lambda _program: done)
    attrs = dict(detect_target().attrs)
    assert (attrs["mcpu"], attrs.get("mattr")) == (mcpu, mattr)
    assert attrs["mtriple"] == "aarch64-linux-gnu"


def test_cpus_that_share_a_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu, siblings in enumerate(("0,2", "1", "0,2")):
        (tmp_path / f"{cpu}").write_text(f"{siblings}\n")
    monkeypatch.setattr(detect_host, "SIBLINGS", f"{tmp_path}/{{}}")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert detect_host.physical_cores() == 2
    monkeypatch.setattr(detect_host, "SIBLINGS", f"{tmp_path}/none{{}}")
    assert detect_host.physical_cores() == 3


def test_no_more_cores_are_used_than_a_group_pays_for(made_up_groups: MadeUp) -> None:
    made_up_groups("0::/a/b", V2_MOUNT, {"a/cpu.max": "150000 100000\n"})
    assert available_cores() == 1
