"""`mallorn devices withdraw`: it counts, asks, and takes back."""

import pytest

from mallorn.cli.terminal import output
from mallorn.db.repositories.devices import Devices, SeenDevice
from tests.fixtures.answers import mallorn, refused
from tests.fixtures.coordinator import OwnedRows

pytestmark = pytest.mark.usefixtures("named_coordinator")


@pytest.fixture
def liar(owned: OwnedRows) -> None:
    """A device that measured one candidate."""
    seen = SeenDevice("a liar", owned.target_id, "far", "host", 2, "0.27.0")
    device_id = owned.write(lambda session: Devices(session).record_seen(seen))
    owned.measured_round(owned.ok(0, 0.5, device_id=device_id))


@pytest.mark.usefixtures("liar")
def test_without_a_terminal_nothing_is_taken_back_unasked(owned: OwnedRows) -> None:
    refused(mallorn("devices", "withdraw", "a liar"), "--yes")
    assert "withdrawn" not in mallorn("dataset", "records", "--job", owned.job_id).stdout


@pytest.mark.usefixtures("liar")
def test_a_person_is_told_how_much_and_may_agree(owned: OwnedRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "can_ask_user", lambda: True)
    taken = mallorn("devices", "withdraw", "a liar", input="y\n")
    assert "Take back 1 measurements, 0 schedules, 0 active cost models?" in taken.stderr
    assert "taken back: 1 measurements" in taken.stderr
    assert "withdrawn" in mallorn("dataset", "records", "--job", owned.job_id).stdout


@pytest.mark.usefixtures("liar")
def test_since_leaves_what_is_older() -> None:
    taken = mallorn("devices", "withdraw", "a liar", "--since", "2100-01-01T12:30", "--yes", "--json")
    assert '"measurements": 0' in taken.stdout


def test_a_device_that_nobody_saw_is_refused() -> None:
    refused(mallorn("devices", "withdraw", "nobody", "--yes"), "there is no device nobody")
