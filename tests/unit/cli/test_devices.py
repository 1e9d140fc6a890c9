"""`mallorn devices withdraw`: it counts, asks, and takes back."""

import pytest

from mallorn.cli.terminal import output
from mallorn.db.repositories.devices import Devices, SeenDevice
from tests.fixtures.answers import Shell
from tests.fixtures.coordinator import OwnedRows
from tests.fixtures.kept import Kept

pytestmark = pytest.mark.usefixtures("named_coordinator")


@pytest.fixture
def liar(owned: OwnedRows) -> None:
    """A device that measured one candidate."""
    seen = SeenDevice("a liar", owned.target_id, "far", "host", 2, "0.27.0")
    device_id = owned.write(lambda session: Devices(session).record_seen(seen))
    owned.measured_round(owned.ok(0, 0.5, device_id=device_id))


@pytest.mark.usefixtures("liar")
def test_what_a_device_measured_is_taken_back_once_that_was_agreed_to(
    owned: OwnedRows, monkeypatch: pytest.MonkeyPatch, shell: Shell, kept: Kept
) -> None:
    shell.names["JOB"] = owned.job_id
    shell("nobody saw it", "devices withdraw nobody --yes")
    shell(
        "without a terminal nothing is taken back", "devices withdraw 'a liar'", "dataset records --job JOB"
    )
    shell("and the command named asks for no more", "devices withdraw 'a liar' --since 2100-01-01")
    shell("what is older stays", "devices withdraw 'a liar' --since 2100-01-01T12:30 --yes")
    monkeypatch.setattr(output, "can_ask_user", lambda: True)
    shell("a person agrees", "devices withdraw 'a liar'", "dataset records --job JOB", input="y\n")
    kept("devices-withdraw", shell.texts)
