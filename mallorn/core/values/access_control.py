"""API keys, owners, sessions and audit entries, as the coordinator sends them."""

from typing import Annotated

from pydantic import Field

from mallorn.core.api_keys import Scope
from mallorn.core.values.base import Value


class ApiKey(Value):
    """What is known of a key; not the key."""

    id: Annotated[str, Field(description="The first part of the key: `mln_ID_...`.")]
    owner: Annotated[str, Field(description="Whose jobs, models and exports it opens.")]
    name: Annotated[str, Field(description="What it is for.")]
    scopes: Annotated[tuple[Scope, ...], Field(description="What it may do; `admin` is all.")]
    created_at: Annotated[float, Field(description="When it was made, or made anew by `rotate`.")]
    expires_at: Annotated[float | None, Field(description="null: never.")] = None
    last_used_at: Annotated[float | None, Field(description="To a minute; null: never used.")] = None
    revoked_at: Annotated[float | None, Field(description="null: it was not revoked.")] = None
    previous_until: Annotated[
        float | None, Field(description="So long the secret before the last rotation opens the same.")
    ] = None


class NewApiKey(ApiKey):
    """A key that was just made."""

    key: Annotated[str, Field(description="The key itself. It is told once; only its SHA-256 is kept.")]


class OwnerStatus(Value):
    """An owner, and whether they may come in."""

    owner: Annotated[str, Field(description="The name; of an erased one the name that stands for it.")]
    put_out_at: Annotated[float | None, Field(description="null: they may come in.")] = None


class Session(Value):
    """Who a browser, or a client, is taken for."""

    owner: Annotated[str | None, Field(description="null: nobody is signed in.")] = None
    scopes: Annotated[tuple[Scope, ...], Field(description="What may be done.")] = ()
    keys: Annotated[bool, Field(description="Whether a key is needed here at all.")] = False
    provider: Annotated[str | None, Field(description="Who else signs people in; null: nobody.")] = None
    refused: Annotated[str | None, Field(description="Why that one did not, a moment ago.")] = None


class AuditEntry(Value):
    """A request that would change something, by somebody who was known."""

    id: int
    at: Annotated[float, Field(description="When it was answered.")]
    owner: Annotated[str, Field(description="Who asked.")]
    key_id: Annotated[str, Field(description="With which key; empty: one of the environment, or none.")]
    method: str
    path: Annotated[str, Field(description="What it was about. No body and no parameter is kept.")]
    status: Annotated[int, Field(description="What it was answered with; refusals are kept, too.")]
    subject: Annotated[str, Field(description="Whose key it made or changed; empty: it was about none.")] = ""
    detail: Annotated[str, Field(description="That key's id, and what it may do.")] = ""
