"""The key of a fleet: a proof holds for who shares the key, and for what was said, alone."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.errors import InvalidRequest
from mallorn.core.fleet_key import LEAST_CHARS, FleetKey
from mallorn.core.settings import Settings

KEYS = st.text("0123456789abcdef", min_size=LEAST_CHARS, max_size=64)
WORDS = st.lists(st.text(max_size=8), max_size=3)


@given(key=KEYS, purpose=st.text(max_size=8), said=WORDS)
def test_who_shares_the_key_believes_the_proof(key: str, purpose: str, said: list[str]) -> None:
    assert FleetKey(key).is_valid_signature(FleetKey(key).sign(purpose, *said), purpose, *said)


@given(key=KEYS, said=WORDS, other=WORDS, purposes=st.tuples(st.text(max_size=8), st.text(max_size=8)))
def test_a_proof_is_good_for_what_was_said_alone(
    key: str, said: list[str], other: list[str], purposes: tuple[str, str]
) -> None:
    proof = FleetKey(key).sign(purposes[0], *said)
    same = (purposes[0], said) == (purposes[1], other)
    assert FleetKey(key).is_valid_signature(proof, purposes[1], *other) == same


@given(key=KEYS, other=KEYS)
def test_another_key_proves_nothing(key: str, other: str) -> None:
    assert FleetKey(key).is_valid_signature(FleetKey(other).sign("peer", "said"), "peer", "said") == (
        key == other
    )


@given(key=KEYS, place=st.integers(0, 63))
def test_an_altered_proof_is_refused(key: str, place: int) -> None:
    proof = FleetKey(key).sign("peer")
    altered = proof[:place] + ("0" if proof[place] != "0" else "1") + proof[place + 1 :]
    assert not FleetKey(key).is_valid_signature(altered, "peer")


@given(old=KEYS, new=KEYS)
def test_while_a_key_is_changed_both_are_believed(old: str, new: str) -> None:
    changing = FleetKey(f"{new},{old}")
    assert changing.is_valid_signature(FleetKey(old).sign("peer"), "peer")
    assert FleetKey(new).is_valid_signature(changing.sign("peer"), "peer")


def test_without_a_key_nothing_is_proven() -> None:
    assert not FleetKey()
    assert FleetKey().sign("peer") == ""
    assert not FleetKey().is_valid_signature("", "peer")


def test_a_key_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="32 characters"):
        FleetKey("secret")


@pytest.mark.parametrize("text", [",", " ", "\n"])
def test_a_key_that_is_set_and_empty_is_not_none(text: str) -> None:
    with pytest.raises(InvalidRequest, match="key is empty"):
        FleetKey(text)


def test_an_empty_file_of_a_key_is_not_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLORN_RPC_KEY", raising=False)
    (tmp_path / "rpc.key").touch()
    with pytest.raises(InvalidRequest, match="key is empty"):
        Settings(data_dir=tmp_path).fleet_key  # noqa: B018


def test_half_a_surrogate_pair_is_refused_like_any_wrong_proof() -> None:
    key = FleetKey("k" * LEAST_CHARS)
    assert not key.is_valid_signature("\ud800", "peer", "\udfff")
    assert key.is_valid_signature(key.sign("peer", "\udfff"), "peer", "\udfff")


def test_no_key_is_shown() -> None:
    key = "0" * LEAST_CHARS
    assert key not in repr(FleetKey(key))
    assert key not in repr(Settings(rpc_key=key))


def test_the_key_of_a_data_directory_serves_where_none_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MALLORN_RPC_KEY", raising=False)
    here, there = "a" * LEAST_CHARS, "b" * LEAST_CHARS
    assert not Settings(data_dir=tmp_path).fleet_key
    (tmp_path / "rpc.key").write_text(here)
    assert Settings(data_dir=tmp_path).fleet_key.text == here
    assert Settings(data_dir=tmp_path, rpc_key=there).fleet_key.text == there
