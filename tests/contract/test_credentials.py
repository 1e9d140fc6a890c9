"""No credential is admitted where another is expected: each operation, asked with each kind of credential."""

import json
from pathlib import Path

import pytest

from tests.contract.credentials import ask_all, collected, document

STORED = Path(__file__).parents[2] / "docs" / "reference" / "credentials.json"
COMMAND = "python -m tests.contract.credentials docs/reference/credentials.json"


# The first asks each operation with some kinds, and each kind at some operations; the other asks all pairs.
@pytest.mark.parametrize("share", [16, pytest.param(1, marks=pytest.mark.long)])
def test_no_pair_of_operation_and_credential_is_admitted_but_the_intended(share: int, tmp_path: Path) -> None:
    stored = json.loads(STORED.read_text())
    with collected(tmp_path) as collection:
        wanted, found = ask_all(collection, share)
        current = document(collection, found)
    assert found == wanted
    for name, admitted in found.items():
        assert set(admitted) <= set(stored["admits"][name]), f"{name}: {COMMAND}"
    if share == 1:
        assert stored == current, COMMAND
    same = "kinds", "open"
    assert [stored[name] for name in same] == [current[name] for name in same], COMMAND
    assert list(stored["admits"]) == list(found), COMMAND
