"""The commands that start parts, as a newcomer types them: what is refused, and in which words."""

from pathlib import Path

import pytest

from mallorn.cli.main import SECTIONS
from tests.fixtures.command_line import assert_refused, mallorn


def test_help_lists_every_command() -> None:
    result = mallorn("--help")
    assert result.returncode == 0
    listed = {line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")}
    assert {name for commands in SECTIONS.values() for name in commands} <= listed
    assert all(f"{section}:" in result.stdout for section in SECTIONS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--host", "0.0.0.0"), "MALLORN_API_KEYS"),
        (("up", "--host", "0.0.0.0", "--data", "somewhere"), "MALLORN_API_KEYS"),
        (("tracker", "--host", "0.0.0.0"), "one private interface"),
        (
            ("device", "--host", "0.0.0.0", "--target", '{"kind":"llvm","num-cores":1}'),
            "one private interface",
        ),
        (("device", "--target", "nonsense"), "unknown target"),
        (("device", "--target", '{"kind":"llvm"}'), "num-cores"),
        (("worker", "--queues", "nonsense"), "--queues import,rounds,finish,train"),
        (("tune", "missing.onnx"), "there is no file 'missing.onnx'"),
        (("compile", "missing.onnx", "--schedules", "x", "-o", "m.so"), "there is no file 'missing.onnx'"),
        (("bench", "missing.onnx", "--schedules", "x"), "there is no file 'missing.onnx'"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    result = mallorn(*words, cwd=tmp_path)
    assert_refused(result, said)


def test_a_package_of_the_user_does_not_shadow_ours(tmp_path: Path) -> None:
    (tmp_path / "db.py").write_text("raise SystemExit('the wrong db')")
    result = mallorn("migrate", cwd=tmp_path, MALLORN_DATA_DIR=str(tmp_path / "data"))
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "data" / "mallorn.db").exists()


def test_migrating_twice_changes_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        assert mallorn("migrate", MALLORN_DATA_DIR=str(tmp_path)).returncode == 0


def test_a_tuned_schedule_directory_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not read before the directory is")
    result = mallorn("compile", "model.onnx", "--schedules", "nowhere", "-o", "model.so", cwd=tmp_path)
    assert_refused(result, "nowhere")
