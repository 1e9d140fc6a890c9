"""What the environment says of sign-ins, as settings hold it."""

import pytest

from mallorn.core.settings import Settings


def test_groups_and_lists_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORN_OIDC_ALLOWED", "ada@example.org, @example.com,")
    monkeypatch.setenv("MALLORN_OIDC_GROUPS", "compilers=read+submit, cn=ops=admin,")
    known = Settings()
    assert known.oidc_allowed == ["ada@example.org", "@example.com"]
    assert known.oidc_groups == {"compilers": "read+submit", "cn=ops": "admin"}
