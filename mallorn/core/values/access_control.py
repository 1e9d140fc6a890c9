"""API keys, owners, sessions and audit entries, as the coordinator sends them."""

from typing import Annotated

from pydantic import Field

from mallorn.core.api_keys import Scope
from mallorn.core.values.base import Value


class ApiKey(Value):
    """An API key, without its secret."""

    id: Annotated[str, Field(description="The key's id, its first part: `mln_ID_...`.")]
    owner: Annotated[str, Field(description="Owner of the jobs, models and exports that the key opens.")]
    name: Annotated[str, Field(description="A name that says what the key is for.")]
    scopes: Annotated[tuple[Scope, ...], Field(description="Requests that it allows; `admin` allows all.")]
    created_at: Annotated[float, Field(description="When it was created, or last given a new secret.")]
    expires_at: Annotated[float | None, Field(description="null: never.")] = None
    last_used_at: Annotated[float | None, Field(description="Accurate to a minute; null: not used yet.")] = (
        None
    )
    revoked_at: Annotated[float | None, Field(description="null: it is not revoked.")] = None
    previous_until: Annotated[
        float | None, Field(description="Until then, the secret before the last rotation is also accepted.")
    ] = None


class NewApiKey(ApiKey):
    """A key that was just created or rotated, with its secret."""

    key: Annotated[str, Field(description="The key itself, sent only once: only its SHA-256 is stored.")]


class OwnerStatus(Value):
    """An owner, and whether the owner is banned."""

    owner: Annotated[str, Field(description="The name; after `erase` the name that replaced it.")]
    banned_at: Annotated[float | None, Field(description="Time of the ban; null: not banned.")] = None


class Session(Value):
    """Identity and scopes of a browser or another client."""

    owner: Annotated[str | None, Field(description="null: nobody is signed in.")] = None
    scopes: Annotated[tuple[Scope, ...], Field(description="Requests that it may make.")] = ()
    requires_key: Annotated[bool, Field(description="Whether this service requires a key or a sign-in.")] = (
        False
    )
    provider: Annotated[str | None, Field(description="Identity provider for sign-in; null: none.")] = None
    refusal: Annotated[str | None, Field(description="Why it was refused just now; null: it was not.")] = None


class AuditEntry(Value):
    """A request of an authenticated caller that was not read-only, and the status of its answer."""

    id: int
    at: Annotated[float, Field(description="When it was answered.")]
    owner: Annotated[str, Field(description="Owner who sent the request.")]
    key_id: Annotated[str, Field(description="Key used; empty: one of MALLORN_API_KEYS, or no key.")]
    method: str
    path: Annotated[str, Field(description="Path of the request; body and parameters are not stored.")]
    status: Annotated[int, Field(description="HTTP status of the answer; refusals are stored, too.")]
    subject: Annotated[str, Field(description="Owner of a key that it made or changed; else empty.")] = ""
    detail: Annotated[str, Field(description="Id and scopes of that API key.")] = ""
