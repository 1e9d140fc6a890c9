"""Allow-list of users whom an identity provider may sign in, with their scopes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mallorn.core.api_keys import ALL_SCOPES, USUAL_SCOPES, Scope
from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import Settings

EMAIL: Final = "email"
Claims = Mapping[str, object]


@dataclass(frozen=True)
class AllowList:
    """Allowed owners, e-mail domains and groups; all other users of the issuer are refused."""

    people: frozenset[str]  # owners and e-mail addresses
    domains: frozenset[str]
    groups: Mapping[str, frozenset[Scope]]
    groups_claim: str
    admins: frozenset[str]

    @classmethod
    def of(cls, settings: Settings) -> "AllowList":
        """Read the settings. Raises InvalidRequest for an empty or malformed allow-list."""
        names = [name.casefold() for name in settings.oidc_allowed]
        domains = frozenset(name[1:] for name in names if name.startswith("@"))
        people = frozenset(name for name in names if not name.startswith("@"))
        admins = frozenset(name.casefold() for name in settings.oidc_admins)
        groups = {name: _parse_scopes(name, words) for name, words in settings.oidc_groups.items()}
        if not all(domains):
            message = "MALLORN_OIDC_ALLOWED contains an @ without a domain"
            raise InvalidRequest(message, hint="write MALLORN_OIDC_ALLOWED=@example.org")
        if not (people or domains or admins or groups):
            raise InvalidRequest(
                f"the allow-list is empty: all of {settings.oidc_issuer} could sign in",
                hint="set MALLORN_OIDC_ALLOWED=ada@example.org,@example.com"
                "   or   MALLORN_OIDC_GROUPS=compilers=read+submit",
            )
        return cls(people, domains, groups, settings.oidc_groups_claim, admins)

    def scopes(self, owner: str, claims: Claims) -> tuple[Scope, ...]:
        """Return an owner's scopes, given the provider's claims; empty if not allowed.

        A name with an @ is an e-mail address, which counts only if the provider verified it.
        """
        email, is_verified = claims.get(EMAIL), claims.get("email_verified") is True
        address = email.casefold() if isinstance(email, str) and is_verified else ""
        names = {address} if "@" in owner else {address, owner.casefold()}
        if names & self.admins:
            return ALL_SCOPES
        scopes: set[Scope] = set()
        if names & self.people or address.rpartition("@")[2] in self.domains:
            scopes.update(USUAL_SCOPES)
        claimed_groups = claims.get(self.groups_claim)
        for group in claimed_groups if isinstance(claimed_groups, list) else [claimed_groups]:
            if isinstance(group, str):
                scopes |= self.groups.get(group, frozenset())
        return tuple(sorted(scopes))


def _parse_scopes(group: str, words: str) -> frozenset[Scope]:
    try:
        return frozenset(Scope(word) for word in words.split("+"))
    except ValueError:
        names = ", ".join(Scope)
        message = f"MALLORN_OIDC_GROUPS, group {group}: unknown scope in {words!r}; known: {names}"
        raise InvalidRequest(message, hint=f"write MALLORN_OIDC_GROUPS={group}=read+submit") from None
