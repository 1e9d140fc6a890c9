"""Who may come in, and what they did: keys, sign-ins, the audit log. Of secrets only the SHA-256 is kept."""

from typing import Any

from sqlalchemy import Index, SmallInteger
from sqlalchemy.orm import Mapped, mapped_column

from db.tables.base import Base, CreatedAt, IdPk, JsonType, Timestamp


class ApiKeyRow(Base):
    """An API key. A row stays: once there was a key, a key is needed."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)  # the key's first part, which lists show
    owner: Mapped[str] = mapped_column(index=True)
    name: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[Any]] = mapped_column(JsonType)  # mallorn.core.api_keys.Scope
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Timestamp | None]
    last_used_at: Mapped[Timestamp | None]
    revoked_at: Mapped[Timestamp | None]
    previous_digest: Mapped[str | None] = mapped_column(index=True)  # of the secret before the last rotation
    previous_until: Mapped[Timestamp | None]  # so long it opens what the key opens


class PutOut(Base):
    """An owner who is not let in, whatever they bring: under a name's SHA-256, for it outlasts the name."""

    __tablename__ = "put_out"

    owner_digest: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[CreatedAt]


class SignIn(Base):
    """A browser that was let in: by a key, whose fate it shares, or by an identity provider."""

    __tablename__ = "sign_ins"
    __table_args__ = (Index("ix_sign_ins_expires_at", "expires_at"),)

    digest: Mapped[str] = mapped_column(primary_key=True)  # of the cookie
    key_digest: Mapped[str | None]  # of the key that let it in
    owner: Mapped[str]
    scopes: Mapped[list[Any]] = mapped_column(JsonType)
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[Timestamp]


class AuditRow(Base):
    """A request that would change something, and what it was answered with."""

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
    detail: Mapped[str] = mapped_column(default="", server_default="")  # the key's id, and what it may do
