"""`mallorn compile` and `mallorn bench` on a directory of schedules, as typed; refusals in this process."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from mallorn.cli.compile_and_bench import WrongNumbers, check_library_outputs
from mallorn.cli.schedule_directory import local_model, read_schedule_directory
from mallorn.core.errors import MallornError
from mallorn.core.values.manifest import DATABASE, RECORDS, ScheduleSet
from mallorn.workers.sandbox.sandbox import WHOLE
from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support
from tests.fixtures import answers
from tests.fixtures.command_line import mallorn
from zoo import MODELS

LEVEL = probe_sandbox_support("best-effort")
needs_walls = pytest.mark.skipif(LEVEL != WHOLE, reason=f"the kernel here closes walls only {LEVEL}")
OTHER_TARGET = '{"kind":"llvm","mcpu":"x86-64","num-cores":1}'


@pytest.fixture
def exported(mlp: Any, tmp_path: Path) -> Path:
    """A directory as `mallorn tune` writes it, to be spoilt at will."""
    return Path(shutil.copytree(mlp.schedules, tmp_path / "schedules"))


CPP = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
ZIG = f"{sys.executable} -m ziglang c++" if find_spec("ziglang") else None


@dataclass(frozen=True)
class Compilation:
    """What `mallorn compile --check --json` wrote and printed."""

    folder: Path
    report: dict[str, Any]


@pytest.fixture(scope="module")
def compilation(mlp_once: Any, tmp_path_factory: pytest.TempPathFactory) -> Compilation:
    """A library and the programs that call it, in a folder of their own."""
    folder = tmp_path_factory.mktemp("compiled")
    words = ("compile", mlp_once.path, "--schedules", mlp_once.schedules, "-o", "mlp.so", "--check", "--json")
    result = mallorn(*words, cwd=folder)
    assert result.returncode == 0, result.stderr
    return Compilation(folder, json.loads(result.stdout))


@pytest.fixture(scope="module")
def mlp_once(example: Any) -> Any:
    return example("mlp")


def typed(line: str, folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    words = ["bash", "-euo", "pipefail", "-c", line]
    env = {**os.environ, "PYTHONPATH": "", "PATH": path}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compile_writes_a_library_and_checks_its_numbers(compilation: Compilation) -> None:
    report = compilation.report
    assert report["found"] == report["of"] > 0
    assert report["error"] <= 1e-4
    assert (compilation.folder / "mlp.so").stat().st_size == report["bytes"]
    assert report["programs"] == ["run.py", "run.cc"]


def test_a_compiled_model_is_called_from_python(compilation: Compilation) -> None:
    said = typed("python run.py", compilation.folder)
    assert said.startswith("logits: float32 [64, 10]\nlatency: ")
    named = "cd .. && python compiled0/run.py compiled0/mlp.so"
    assert typed(named, compilation.folder).startswith("logits: ")


@pytest.mark.skipif(CPP is None and ZIG is None, reason="needs a C++ compiler on PATH, or ziglang")
def test_a_compiled_model_is_called_from_cpp_by_the_lines_it_begins_with(
    compilation: Compilation,
) -> None:
    source = (compilation.folder / "run.cc").read_text().splitlines()
    lines = "\n".join(line.removeprefix("//   ") for line in source if line.startswith("//   "))
    said = typed(lines.replace("g++", str(CPP or ZIG)), compilation.folder)
    assert said.startswith("logits: float32 [64, 10]\nlatency: ")


def test_a_torn_line_of_the_version_that_is_asked_for_is_named_and_the_good_ones_are_used(
    mlp: Any, exported: Path, tmp_path: Path
) -> None:
    for name in DATABASE:
        shutil.copy(exported / name, exported / ScheduleSet.LOADED.file(name))
    records = exported / ScheduleSet.LOADED.file(RECORDS)
    whole = records.read_text().splitlines()
    records.write_text("\n".join([*whole[:-1], "torn"]))
    words = ("compile", mlp.path, "--schedules", str(exported), "-o", "m.so")
    result = mallorn(*words, "--set", "loaded", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"{records}, line {len(whole)} cannot be used" in result.stderr
    assert f"{len(whole) - 1} of {len(whole)} workloads" in result.stdout
    assert "  python run.py\n" in result.stderr
    assert "  ./run m.so\n" in result.stderr


def test_a_version_that_is_not_there_is_refused(mlp: Any, exported: Path, tmp_path: Path) -> None:
    words = ("compile", mlp.path, "--schedules", str(exported), "-o", str(tmp_path / "m.so"))
    result = answers.mallorn(*words, "--set", "loaded")
    answers.refused(result, "has no schedules for --set loaded", "mallorn tune MODEL --contention")


def test_schedules_of_another_target_are_refused(mlp: Any, exported: Path, tmp_path: Path) -> None:
    library = tmp_path / "m.so"
    words = ("compile", mlp.path, "--schedules", str(exported), "--target", OTHER_TARGET, "-o", str(library))
    result = answers.mallorn(*words)
    answers.refused(result, "not for")
    assert not library.exists()


def test_schedules_that_cover_nothing_are_refused(mlp: Any, exported: Path, tmp_path: Path) -> None:
    for name in ("database_tuning_record.json", "database_workload.json"):
        (exported / name).write_text("")
    result = answers.mallorn("compile", mlp.path, "--schedules", str(exported), "-o", str(tmp_path / "m.so"))
    answers.refused(result, "tuned for another model")
    assert not (tmp_path / "m.so").exists()


def test_bench_times_the_tuned_model_beside_onnxruntime(mlp: Any, exported: Path) -> None:
    result = mallorn("bench", mlp.path, "--schedules", str(exported), "--json")
    assert result.returncode == 0, result.stderr
    latencies = json.loads(result.stdout)["latency_us"]
    assert set(latencies) == {"tuned", "onnxruntime"}
    assert all(0 < one["low"] <= one["median"] <= one["high"] for one in latencies.values())


def test_a_library_with_other_weights_does_not_pass_the_check(
    mlp: Any, exported: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(MODELS["mlp"](1).SerializeToString())
    known = read_schedule_directory(exported, None)
    with local_model(other, known) as model:
        model.compile_untuned(model.folder / "wrong.so")
        shutil.copy(model.folder / "wrong.so", tmp_path)
    with local_model(Path(mlp.path), known) as model:
        wrong = Path(shutil.copy(tmp_path / "wrong.so", model.folder))
        with pytest.raises(WrongNumbers, match="relative error against the untuned model") as refusal:
            check_library_outputs(model, wrong)
    assert refusal.value.hint


def spoilt(exported: Path, step: list[Any]) -> None:
    """Add an instruction to the trace of every record."""
    file = exported / RECORDS
    records = [json.loads(line) for line in file.read_text().splitlines()]
    for _, (trace, *_) in records:
        trace[0].append(step)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_schedules_that_import_code_are_left_out(mlp: Any, exported: Path, tmp_path: Path) -> None:
    constructor = "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] zeroinitializer"
    spoilt(exported, ["Annotate", ["l1", json.dumps(constructor)], ["pragma_import_llvm"], []])
    result = answers.mallorn(
        "compile", mlp.path, "--schedules", str(exported), "-o", str(tmp_path / "model.so")
    )
    answers.refused(
        result, "the annotation pragma_import_llvm is not allowed", "no line of its logs can be used"
    )
    assert not (tmp_path / "model.so").exists()


def test_a_recipe_that_applies_other_schedules_is_refused(mlp: Any, exported: Path, tmp_path: Path) -> None:
    manifest = json.loads((exported / "manifest.json").read_text())
    step = {"pass": "relax.transform.MetaScheduleApplyDatabase", "args": [str(exported)]}
    manifest["recipe"]["before"].append(step)
    (exported / "manifest.json").write_text(json.dumps(manifest))
    result = answers.mallorn(
        "compile", mlp.path, "--schedules", str(exported), "-o", str(tmp_path / "model.so")
    )
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code > 0
    assert "MetaScheduleApplyDatabase is not a graph pass of" in result.stderr


@needs_walls
def test_what_reads_schedules_reads_no_other_file_of_the_user(
    mlp: Any, exported: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "other.onnx"
    other.parent.mkdir()
    shutil.copy(mlp.path, other)
    with local_model(Path(mlp.path), read_schedule_directory(exported, None)) as model:
        assert model.graphs.read_signature(mlp.path, {}).inputs
        with pytest.raises(MallornError):
            model.graphs.read_signature(str(other), {})
        library = tmp_path / "elsewhere" / "model.so"
        with pytest.raises(MallornError):
            model.compile_untuned(library)
        assert not library.exists()


def test_profile_tells_where_the_time_goes(mlp: Any, exported: Path) -> None:
    result = mallorn("profile", mlp.path, "--schedules", str(exported), "--seconds", "0.1", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert {kernel["kernel"] for kernel in report["kernels"]} == {task.name for task in mlp.tasks}
    assert sum(kernel["share"] for kernel in report["kernels"]) == pytest.approx(1)
    assert all(kernel["time_us"] > 0 for kernel in report["kernels"])
    assert report["machine"]["gflops"] > 0
    assert not any("calls" in cause for kernel in report["kernels"] for cause in kernel["held_back_by"])


def verified(mlp: Any, exported: Path, *words: str) -> subprocess.CompletedProcess[str]:
    words = ("--schedules", str(exported), "--json", *words)
    return mallorn("verify", mlp.path, *words, XDG_CACHE_HOME=str(exported.parent / "cache"))


def test_schedules_are_verified_beside_a_baseline_and_the_proof_is_kept(
    mlp: Any, exported: Path, tmp_path: Path
) -> None:
    shutil.copytree(exported, tmp_path / "before")
    (exported / RECORDS).write_text("\n".join(reversed((exported / RECORDS).read_text().splitlines())) + "\n")
    words = ("--baseline", str(tmp_path / "before"), "--tolerance", "99")
    result = verified(mlp, exported, *words, "--junit", str(tmp_path / "junit.xml"))
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert set(report["latency_us"]) == {"tuned", "baseline"}
    names = [check["name"] for check in report["checks"] if check["kind"] == "applied"]
    assert sorted(names) == sorted(task.name for task in mlp.tasks)
    assert (tmp_path / "junit.xml").read_text().count("<testcase") == len(report["checks"])
    again = verified(mlp, exported, *words)
    assert "nothing changed" in again.stderr
    assert json.loads(again.stdout) == report


def test_a_record_that_does_not_replay_is_not_verified_and_nothing_is_timed(mlp: Any, exported: Path) -> None:
    records = (exported / RECORDS).read_text().splitlines()
    (exported / RECORDS).write_text("\n".join([*records[:-1], "torn"]) + "\n")
    result = verified(mlp, exported)
    assert result.returncode == 10, result.stderr
    report = json.loads(result.stdout)
    failed = [check["name"] for check in report["checks"] if check["outcome"] == "failed"]
    assert f"{RECORDS}, line {len(records)}" in failed
    assert len(failed) == 2  # the line, and its workload
    assert report["latency_us"] == {}
    assert not (exported.parent / "cache").exists()
