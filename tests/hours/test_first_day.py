"""A first day in the orders that people meet; docs/guarantees.md lists them."""

import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mallorn.stack.data_directory import DataDir
from tests.fixtures.command_line import ROOT
from tests.fixtures.newcomer import LINE_SEC, Newcomer, clone, set_up
from tests.fixtures.service import committed, executions, measured_well
from tests.fixtures.users import NOBODY, SOMEBODY, command_of, only_root
from tests.fixtures.waiting import wait_for

TUNE = "mallorn tune build/models/mlp.onnx --trials 4 --out won"


def checkout(root: Path) -> Path:
    """One that is set up, with the example model."""
    set_up(clone(root))
    return root


def data_of(newcomer: Newcomer) -> DataDir:
    return DataDir(newcomer.home / ".local" / "share" / "mallorn")


@pytest.mark.long
def test_run_twice_where_path_and_home_have_spaces_under_a_closed_umask_in_no_language(
    tmp_path: Path,
) -> None:
    odd = {"LANG": "C", "LC_ALL": "C", "TERM": "dumb"}
    newcomer = Newcomer(checkout(tmp_path / "a path" / "with spaces"), tmp_path / "a home", **odd)
    for _ in range(2):
        said = newcomer.types("umask 077; make run TRIALS=4")
        assert "verdict: " in said
        assert (newcomer.root / "build" / "mlp-tuned" / "manifest.json").is_file()
    counts = executions(data_of(newcomer))
    assert len(counts) > 4, "the second run measured nothing"
    well = measured_well(committed(data_of(newcomer)))
    assert set(well.values()) == {1}, "the second run measured again what the first had"


@pytest.mark.long
def test_two_checkouts_at_once_beside_a_running_service_share_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    one = Newcomer(checkout(tmp_path / "one"), home)
    other = Newcomer(checkout(tmp_path / "other"), home)
    with one.typing("mallorn up --port 0"):
        wait_for(lambda: data_of(one).read_running_stack(), "the service")
        for each in (one, other):
            each.types("python examples/build.py mlp -o build/models")
        with one.typing(TUNE) as first, other.typing(TUNE) as second:
            said = [process.communicate(timeout=LINE_SEC)[0] for process in (first, second)]
        assert [process.returncode for process in (first, second)] == [0, 0], said
        assert not any("starting the service" in each for each in said)
        assert len(re.findall(r"\bdone\b", one.types("mallorn jobs"))) == 2


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder for temporary files in which every user makes some and nobody deletes another's, as /tmp."""
    with TemporaryDirectory(dir="/tmp", prefix="first-day-") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@pytest.mark.long
@only_root
def test_two_users_at_once_meet_in_their_locks_and_not_in_their_jobs(shared: Path, networks: Path) -> None:
    users = {uid: shared / f"home {uid}" for uid in (NOBODY, SOMEBODY)}
    model = shared / "mlp.onnx"
    subprocess.run(
        command_of(0, "python", str(ROOT / "examples/build.py"), "mlp", "-o", str(shared)), check=True
    )
    model.chmod(0o644)
    running = {}
    for uid, home in users.items():
        home.mkdir()
        shutil.chown(home, uid, uid)
        line = f"umask 077; cd '{home}' && exec mallorn tune '{model}' --trials 4 --out won"
        env = {"HOME": str(home), "TMPDIR": str(shared)}
        running[uid] = subprocess.Popen(
            command_of(uid, "bash", "-c", line, **env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    for uid, process in running.items():
        said, _ = process.communicate(timeout=LINE_SEC)
        assert process.returncode == 0, said
        assert "Traceback" not in said
        assert (users[uid] / "won" / "manifest.json").stat().st_uid == uid
        data = users[uid] / ".local" / "share" / "mallorn"
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
    locks = list(shared.glob("mallorn-cores.*"))
    assert {stat.S_IMODE(lock.stat().st_mode) for lock in locks} == {0o644}


@pytest.fixture
def small_home(tmp_path: Path) -> Iterator[Path]:
    """A home of one megabyte."""
    home = tmp_path / "home"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(home)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield home
    subprocess.run(["umount", "--lazy", str(home)], check=True)


def test_a_home_that_is_full_or_read_only_is_refused_in_a_sentence(small_home: Path, networks: Path) -> None:
    newcomer = Newcomer(ROOT, small_home)
    tune = f"mallorn tune '{networks / 'mlp.onnx'}' --trials 4 --out '{small_home.parent / 'won'}'"
    full = newcomer.types(tune, code=1).splitlines()
    assert [line.partition(" ")[0] for line in full] == ["error:", "next:"]
    assert "free for" in full[0]
    assert "--data DIR" in full[1]

    subprocess.run(["mount", "-o", "remount,ro,size=400m", str(small_home)], check=True)
    read_only = newcomer.types(tune, code=1).splitlines()
    assert [line.partition(" ")[0] for line in read_only] == ["error:", "next:"]
    assert "Read-only file system" in read_only[0]
    assert "no jobs yet" in newcomer.types("mallorn jobs")
    assert not (small_home.parent / "won").exists()
