"""What the exported script says where it cannot do its work: a sentence, what to do, and exit code 1."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm

from mallorn.core.values.manifest import RECORDS
from mallorn.graphc.export import apply_schedules_main, compile_network
from tests.integration.tvm_graph.test_apply_script import start

NO_TVM = "No module named 'tvm'"


def change(directory: Path, **values: Any) -> None:
    manifest = directory / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | values))


@pytest.fixture
def typed(exported: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The script as typed, in this process: TVM takes long to load."""
    for name in ("PATH", "TVM_NUM_THREADS"):  # which it sets
        monkeypatch.setenv(name, os.environ.get(name, ""))

    def run(*args: str) -> None:
        monkeypatch.setattr("sys.argv", [str(exported / "apply.py"), *args])
        apply_schedules_main.main(exported)

    return run


@pytest.fixture
def report(typed: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(*args: str) -> Any:
        typed(*args)
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


@pytest.fixture
def refusal(typed: Callable[..., None]) -> Callable[..., str]:
    def run(*args: str) -> str:
        with pytest.raises(SystemExit) as ended:
            typed(*args)
        words = str(ended.value.code)  # Python prints a text, and exits with 1
        assert words.startswith("error: ")
        assert "\n  " in words  # what to do
        return words

    return run


def test_another_ffi_is_refused_before_tvm_is_loaded(mlp: Any, exported: Path) -> None:
    change(exported, versions={"mallorn": "9", "apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.13"})
    (exported / "tvm.py").write_text(f'raise ImportError("{NO_TVM}")')
    done = start(str(exported), mlp.path)
    assert done.returncode == 1
    assert "0.1.13 is needed" in done.stderr
    assert f"pip install -r {exported / 'requirements.txt'}" in done.stderr
    assert "Traceback" not in done.stderr
    assert NO_TVM in start(str(exported), mlp.path, "--any-version").stderr


def test_a_package_that_is_missing_is_named(mlp: Any, exported: Path, refusal: Callable[..., str]) -> None:
    change(exported, versions={"numpy": "1.0", "mallorn-nowhere": "1"})
    assert "error: mallorn-nowhere is not installed\n" in refusal(mlp.path)


def test_another_model_is_refused(example: Callable[..., Any], refusal: Callable[..., str]) -> None:
    words = refusal(example("bert-small").path)
    assert "none of the" in words
    assert "the model is not the one that was tuned" in words


def test_a_model_with_other_inputs_is_refused_in_their_words(
    mlp: Any, exported: Path, refusal: Callable[..., str]
) -> None:
    change(exported, inputs=[{"name": "x", "dtype": "float32", "shape": [1, 7]}])
    words = refusal(mlp.path)
    assert "takes input float32[64, 784]; the schedules are for a model that takes x float32[1, 7]" in words


def test_a_workload_without_a_schedule_fails_unless_it_is_allowed_or_known(
    mlp: Any, exported: Path, refusal: Callable[..., str], report: Callable[..., Any]
) -> None:
    whole = (exported / RECORDS).read_text().splitlines()
    (exported / RECORDS).write_text("\n".join(whole[:-1]) + "\n")
    words = refusal(mlp.path)
    assert "1 of 3 workloads have no schedule: " in words
    assert report(mlp.path, "--allow-missing")["workloads_found"] == 2
    names = [task.name for task in mlp.tasks]
    change(exported, without_schedule=[name for name in names if f"schedule: {name}\n" in words])
    assert report(mlp.path)["workloads_found"] == 2


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere.onnx", "there is no file"), ("manifest.json", "is not an ONNX model")]
)
def test_a_file_that_is_no_model_is_named(
    exported: Path, refusal: Callable[..., str], name: str, said: str
) -> None:
    assert said in refusal(str(exported / name))


def test_no_compiler_is_said_before_anything_is_compiled(
    mlp: Any, refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert "there is no compiler /nowhere/g++" in refusal(mlp.path)


def test_a_processor_that_lacks_an_instruction_may_compile_and_does_not_run(
    mlp: Any,
    exported: Path,
    refusal: Callable[..., str],
    report: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (exported / "cpuinfo").write_text("flags\t\t: fpu sse sse2 sse4_2\n")
    monkeypatch.setattr(compile_network, "PROCESSORS", exported / "cpuinfo")
    change(exported, target={"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})
    assert "skylake-avx512; this processor lacks avx, avx2, fma" in refusal(mlp.path)
    library = exported / "model.so"
    assert report(mlp.path, "-o", str(library), "--allow-missing")["latency_ms"] is None
    assert library.is_file()


def test_a_board_without_an_instruction_of_the_target_is_refused_by_the_features_of_its_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = ("+neon", "+dotprod", "+i8mm")
    target = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": [*features]})
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd asimddp\n\nHardware\t: a board\n")
    monkeypatch.setattr(compile_network, "PROCESSORS", tmp_path / "cpuinfo")
    monkeypatch.setattr(compile_network.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(compile_network, "llvm_get_system_triple", lambda: "aarch64-unknown-linux-gnu")
    reason = compile_network.why_it_cannot_run(target)
    assert reason == "the schedules are for aarch64-linux-gnu; this processor lacks i8mm"


def test_a_processor_of_another_kind_is_named(mlp: Any, exported: Path, refusal: Callable[..., str]) -> None:
    change(exported, target={"kind": "llvm", "mcpu": "no-such-cpu", "num-cores": 2})
    assert "the schedules are for no-such-cpu" in refusal(mlp.path)


def test_a_torn_manifest_is_refused(mlp: Any, exported: Path, refusal: Callable[..., str]) -> None:
    (exported / "manifest.json").write_text('{"target"')
    assert "manifest.json cannot be used" in refusal(mlp.path)


def test_a_version_for_busy_machines_that_is_not_there_is_named(
    mlp: Any, exported: Path, refusal: Callable[..., str]
) -> None:
    words = refusal(mlp.path, "--set", "loaded")
    assert "there are no schedules for --set" in words
    assert "--contention" in words


def test_the_version_for_busy_machines_is_taken_where_it_is_asked_for(
    mlp: Any, exported: Path, report: Callable[..., Any], refusal: Callable[..., str]
) -> None:
    for name in apply_schedules_main.RECORDS:
        shutil.move(exported / name, exported / f"loaded_{name}")
        (exported / name).touch()
    found = report(mlp.path, "--set", "loaded")
    assert found["workloads_found"] == found["workloads"]
    assert "has a schedule" in refusal(mlp.path)
