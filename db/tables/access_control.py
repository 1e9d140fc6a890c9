"""API keys, sessions, login codes, bans and the audit log. Secrets are SHA-256 digests."""

from typing import Any

from sqlalchemy import ForeignKey, Index, SmallInteger
from sqlalchemy.orm import Mapped, mapped_column

from mallorn.db.tables.base import Base, CreatedAt, IdPk, JsonType, Timestamp


class ApiKeyRow(Base):
    """An API key. Rows are never deleted: once a database has had a key, requests need one."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)  # the first part of the key, shown in lists
    owner: Mapped[str] = mapped_column(index=True)
    name: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[Any]] = mapped_column(JsonType)  # mallorn.core.api_keys.Scope
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Timestamp | None]
    last_used_at: Mapped[Timestamp | None]
    revoked_at: Mapped[Timestamp | None]
    previous_digest: Mapped[str | None] = mapped_column(index=True)  # of the secret before the last rotation
    previous_until: Mapped[Timestamp | None]  # when the previous secret expires


class BannedOwner(Base):
    """A ban of an owner, stored as the name's SHA-256, so that it outlasts an erasure."""

    __tablename__ = "put_out"

    owner_digest: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[CreatedAt]


class SessionRow(Base):
    """A browser session that a valid API key or an identity provider began."""

    __tablename__ = "browser_sessions"
    __table_args__ = (Index("ix_browser_sessions_expires_at", "expires_at"),)

    digest: Mapped[str] = mapped_column(primary_key=True)  # of the cookie
    page_digest: Mapped[str]  # of the secret that the page sends with the cookie
    key_id: Mapped[str | None] = mapped_column(ForeignKey("api_keys.id"))  # or MALLORN_API_KEYS
    key_digest: Mapped[str | None]  # ends the session with the secret; null: a provider
    owner: Mapped[str] = mapped_column(index=True)
    scopes: Mapped[list[Any]] = mapped_column(JsonType)
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Timestamp]


class LoginCode(Base):
    """A code that `mallorn login` may exchange once for an API key of the owner."""

    __tablename__ = "login_codes"
    __table_args__ = (Index("ix_login_codes_expires_at", "expires_at"),)

    digest: Mapped[str] = mapped_column(primary_key=True)  # of the code and its challenge
    owner: Mapped[str]
    scopes: Mapped[list[Any]] = mapped_column(JsonType)
    expires_at: Mapped[Timestamp]


class AuditRow(Base):
    """A request that could change something, and the status of its response."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("ix_audit_owner_id", "owner", "id"),
        Index("ix_audit_subject_id", "subject", "id"),
        Index("ix_audit_at", "at"),
    )

    id: Mapped[IdPk]
    at: Mapped[CreatedAt]
    owner: Mapped[str]
    key_id: Mapped[str]
    method: Mapped[str]
    path: Mapped[str]
    status: Mapped[int] = mapped_column(SmallInteger)
    subject: Mapped[str] = mapped_column(default="", server_default="")  # the owner whose key was changed
    detail: Mapped[str] = mapped_column(default="", server_default="")  # the id and scopes of that key
