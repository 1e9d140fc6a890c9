"""What a target says of products: its processor's instructions, if the kernel gives their registers."""

import os
import platform
import subprocess
import sys

import pytest

from mallorn.workers.device import detect_host, target_support
from mallorn.workers.device.cpu_speed_limits import cpu_info
from mallorn.workers.device.detect_host import detect_target
from mallorn.workers.device.target_support import find_unsupported_reason
from mallorn.workers.sandbox.seccomp import ALLOWED

V4 = "avx512f avx512bw avx512cd avx512dq avx512vl"
TILES = "amx_tile amx_int8 amx_bf16"


@pytest.mark.parametrize("is_allowed", [True, False])
def test_tiles_count_where_the_kernel_gives_them(is_allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect_host, "request_amx_tiles", lambda: is_allowed)
    found = detect_host.usable_flags({"flags": f"avx512f {TILES}"})
    assert found == {"avx512f", *(TILES.split() if is_allowed else [])}


@pytest.mark.parametrize(
    ("flags", "known", "said"),
    [
        (TILES, {"avx2"}, ["+amx-tile", "+amx-int8", "+amx-bf16"]),
        (TILES, {"amx-tile", "amx-int8", "amx-bf16"}, []),
        ("avx2", {"amx-tile", "amx-int8", "amx-bf16"}, ["-amx-tile", "-amx-int8", "-amx-bf16"]),
        ("avx512_bf16", set(), ["+avx512bf16"]),
        ("avx512_vnni", {"avx512vnni"}, []),
    ],
)
def test_a_target_names_what_its_processor_s_name_does_not_say(
    flags: str, known: set[str], said: list[str]
) -> None:
    assert detect_host.feature_differences(set(flags.split()), known) == said


@pytest.mark.parametrize(
    ("is_allowed", "mattr"),
    [(True, None), (False, ["-amx-tile", "-amx-int8"])],
    ids=["a kernel that gives tiles", "one that gives none"],
)
def test_the_local_target_has_tiles_where_the_kernel_gives_them(
    is_allowed: bool, mattr: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"print('sapphirerapids {V4} amx-tile amx-int8 prefer-256-bit')"
    monkeypatch.setattr(detect_host, "LLVM_CPU_PROGRAM", program)
    monkeypatch.setattr(detect_host, "cpu_info", lambda: {"flags": f"{V4} amx_tile amx_int8"})
    monkeypatch.setattr(detect_host, "request_amx_tiles", lambda: is_allowed)
    found = detect_target().attrs
    assert (found["mcpu"], found.get("mattr")) == ("sapphirerapids", mattr)


def test_a_host_runs_code_with_tiles_only_where_it_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiles: this host if it has them; without: no host whose kernel gives none."""
    target = detect_host.parse_target({"kind": "llvm", "num-cores": 1, "mattr": ["+amx-tile"]})
    monkeypatch.setattr(target_support.os, "uname", lambda: os.uname_result(("", "", "", "", "x86_64")))
    monkeypatch.setattr(detect_host, "request_amx_tiles", lambda: False)
    assert "amx-tile" in find_unsupported_reason(target)


def test_the_kernel_is_asked_and_believed() -> None:
    """As a process of its own finds: on a host with tiles one that gets them, on others one that does not."""
    script = "import ctypes; print(ctypes.CDLL(None).syscall(158, 0x1023, 18))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    given = platform.machine() == "x86_64" and int(answer.stdout) == 0
    assert detect_host.request_amx_tiles() == given
    assert not given or "amx_tile" in cpu_info()["flags"]


def test_the_sandbox_leaves_the_question_to_the_kernel() -> None:
    assert ALLOWED["arch_prctl"] == [158, -1]
