"""Tests own their world: nothing of the user's is read or written, in whatever home they run."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

from mallorn.core.host_id import host_folder
from mallorn.core.settings import Settings
from tests.fixtures.trap import main
from tests.fixtures.world import PREFIX


def test_home_settings_temporary_files_and_locks_are_of_the_run() -> None:
    folder = Path(tempfile.gettempdir())
    assert folder.name.startswith(PREFIX)
    assert Path.home().parent == host_folder() == folder
    assert not any(name.startswith("MALLORN_") for name in os.environ)
    assert Settings().data_dir.is_relative_to(folder)
    assert not Settings().fleet_key


def test_so_they_are_in_a_home_that_is_a_trap(capfd: pytest.CaptureFixture[str]) -> None:
    inner = f"{__file__}::{test_home_settings_temporary_files_and_locks_are_of_the_run.__name__}"
    code = main([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", inner])
    assert code == 0, capfd.readouterr()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo > $HOME/.local/share/mallorn/mallorn.db", "mallorn.db was changed"),
        ("rm $MALLORN_DATA_DIR/rpc.key", "rpc.key was removed"),
        ("mkdir $XDG_CONFIG_HOME/other", "other was made"),
        ("touch $MALLORN_HOST_FOLDER/lock && rm $MALLORN_HOST_FOLDER/lock", "host was changed"),
        ("touch $TMPDIR/left", "left was left behind"),
        ("echo > /dev/tcp/${MALLORN_TRACKER/://}", "MALLORN_URL was called"),
    ],
)
def test_who_touches_it_is_caught(program: str, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bash", "-c", program]) == 1
    assert said in capfd.readouterr().err


def test_who_touches_nothing_ends_as_it_would() -> None:
    assert [main(["bash", "-c", f"exit {code}"]) for code in (0, 5)] == [0, 5]
