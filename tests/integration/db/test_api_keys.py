"""API keys and sign-ins in SQL: what is kept of a secret, and how long it opens anything."""

import pytest
from sqlalchemy import func, select, text, update

from mallorn.core.api_keys import USUAL_SCOPES, Scope, hash_secret
from mallorn.core.errors import Conflict
from mallorn.core.values.access_control import NewApiKey
from mallorn.db.repositories.access_control import ApiKeys, SignIns
from mallorn.db.tables import ApiKeyRow, SessionRow
from tests.fixtures.rows import Rows


def signed_in() -> SessionRow:
    return SessionRow(owner="ada", scopes=[Scope.READ], page_digest="digest of a page's secret")


def made(rows: Rows, owner: str = "ada", days: float | None = None) -> NewApiKey:
    return rows.write(lambda session: ApiKeys(session).create(owner, "ci", USUAL_SCOPES, days))


def test_a_key_has_256_bits_and_none_is_like_another(rows: Rows) -> None:
    keys = [made(rows) for _ in range(20)]
    secrets = {key.key.removeprefix(f"mln_{key.id}_") for key in keys}
    assert len(secrets) == 20
    assert all(len(secret) * 6 >= 256 for secret in secrets)


def test_only_the_digest_is_kept(rows: Rows) -> None:
    key = made(rows)
    secret = key.key.removeprefix(f"mln_{key.id}_")
    with rows.database.session() as session:
        kept = [str(value) for row in session.execute(text("SELECT * FROM api_keys")) for value in row]
    assert hash_secret(key.key) in kept
    assert not any(secret in value for value in kept)


def test_it_is_found_by_what_was_presented(rows: Rows) -> None:
    key = made(rows)
    found = rows.read(lambda session: ApiKeys(session).find_by_digest(hash_secret(key.key)))
    assert found is not None
    assert (found.id, found.owner, found.scopes) == (key.id, "ada", USUAL_SCOPES)
    assert rows.read(lambda session: ApiKeys(session).find_by_digest(hash_secret(key.id))) is None


def test_revoking_the_last_leaves_the_door_shut(rows: Rows) -> None:
    assert not rows.read(lambda session: ApiKeys(session).has_ever_existed())
    key = made(rows)
    rows.write(lambda session: ApiKeys(session).revoke(key.id))
    assert rows.read(lambda session: ApiKeys(session).has_ever_existed())


def test_a_second_revocation_keeps_the_time_of_the_first(rows: Rows) -> None:
    key = made(rows)
    rows.write(lambda session: ApiKeys(session).revoke(key.id))
    first = rows.read(lambda session: ApiKeys(session).get(key.id)).revoked_at
    rows.write(lambda session: ApiKeys(session).revoke(key.id))
    assert first is not None
    assert rows.read(lambda session: ApiKeys(session).get(key.id)).revoked_at == first


def test_a_rotated_key_lasts_as_long_as_it_was_made_for(rows: Rows) -> None:
    key = made(rows, days=2)
    day = 24 * 3600
    old = {"created_at": key.created_at - day, "expires_at": key.created_at + day}
    rows.write(lambda session: session.execute(update(ApiKeyRow).values(**old)))
    fresh = rows.write(lambda session: ApiKeys(session).rotate(ApiKeys(session).get(key.id)))
    assert fresh.id == key.id
    assert fresh.key != key.key
    assert fresh.expires_at is not None
    assert abs(fresh.expires_at - fresh.created_at - 2 * day) < 1
    assert fresh.created_at >= key.created_at
    assert rows.read(lambda session: ApiKeys(session).find_by_digest(hash_secret(key.key))) is None


def test_a_key_that_is_over_stays_so(rows: Rows) -> None:
    revoked, expired = made(rows), made(rows, days=1)
    rows.write(lambda session: ApiKeys(session).revoke(revoked.id))
    over = update(ApiKeyRow).where(ApiKeyRow.id == expired.id).values(expires_at=1.0)
    rows.write(lambda session: session.execute(over))
    for key, words in ((revoked, "was revoked"), (expired, "has expired")):
        with pytest.raises(Conflict, match=f"{key.id} {words}.* and cannot be used again"):
            rows.write(lambda session, key=key: ApiKeys(session).rotate(ApiKeys(session).get(key.id)))


def test_a_rotation_does_not_overtake_a_revocation(rows: Rows) -> None:
    key = made(rows)
    known = rows.read(lambda session: ApiKeys(session).get(key.id))
    rows.write(lambda session: ApiKeys(session).revoke(key.id))
    with pytest.raises(Conflict):
        rows.write(lambda session: ApiKeys(session).rotate(known))


def test_of_two_who_rotate_the_same_secret_the_second_is_refused(rows: Rows) -> None:
    key = made(rows)
    both = rows.read(lambda session: ApiKeys(session).get(key.id))
    rows.write(lambda session: ApiKeys(session).rotate(both, current_digest=hash_secret(key.key)))
    with pytest.raises(Conflict, match="rotated before"):
        rows.write(lambda session: ApiKeys(session).rotate(both, current_digest=hash_secret(key.key)))


def test_the_old_secret_is_let_in_for_its_grace_and_no_longer_than_it_would_have_been(rows: Rows) -> None:
    key = made(rows, days=1)
    rows.write(lambda session: ApiKeys(session).rotate(ApiKeys(session).get(key.id), 600.0))
    found = rows.read(lambda session: ApiKeys(session).find_by_digest(hash_secret(key.key)))
    assert found is not None
    assert not rows.read(lambda session: ApiKeys(session).is_current(key.id, hash_secret(key.key)))
    rows.write(lambda session: session.execute(update(ApiKeyRow).values(previous_until=found.created_at - 1)))
    assert rows.read(lambda session: ApiKeys(session).find_by_digest(hash_secret(key.key))) is None
    soon = made(rows, days=0.001)
    rows.write(lambda session: ApiKeys(session).rotate(ApiKeys(session).get(soon.id), 600.0))
    assert rows.read(lambda session: ApiKeys(session).get(soon.id)).previous_until == soon.expires_at


def test_use_is_noted_once_a_minute(rows: Rows) -> None:
    key = made(rows)
    rows.write(lambda session: ApiKeys(session).record_use(key.id))
    first = rows.read(lambda session: ApiKeys(session).get(key.id)).last_used_at
    rows.write(lambda session: ApiKeys(session).record_use(key.id))
    assert first is not None
    assert rows.read(lambda session: ApiKeys(session).get(key.id)).last_used_at == first
    rows.write(lambda session: session.execute(update(ApiKeyRow).values(last_used_at=first - 61)))
    rows.write(lambda session: ApiKeys(session).record_use(key.id))
    assert rows.read(lambda session: ApiKeys(session).get(key.id)).last_used_at > first - 1


def test_owners_list_their_own(rows: Rows) -> None:
    hers, his = made(rows, "ada"), made(rows, "bob")
    assert [key.id for key in rows.read(lambda session: ApiKeys(session).list("ada"))] == [hers.id]
    assert {key.id for key in rows.read(lambda session: ApiKeys(session).list())} == {hers.id, his.id}


def test_a_sign_in_ends(rows: Rows) -> None:
    lasting = rows.write(lambda session: SignIns(session).create_session(signed_in(), 60))
    over = rows.write(lambda session: SignIns(session).create_session(signed_in(), -1))
    found = rows.read(lambda session: SignIns(session).find_session(lasting))
    assert found is not None
    assert (found.owner, found.scopes) == ("ada", ["read"])
    assert rows.read(lambda session: SignIns(session).find_session(over)) is None
    rows.write(lambda session: SignIns(session).end_session(lasting))
    assert rows.read(lambda session: SignIns(session).find_session(lasting)) is None


def test_sign_ins_that_ended_are_forgotten_by_the_next(rows: Rows) -> None:
    for seconds in (-1, -1, 60):
        rows.write(lambda session, seconds=seconds: SignIns(session).create_session(signed_in(), seconds))
    assert rows.read(lambda session: session.scalar(select(func.count()).select_from(SessionRow))) == 1
