"""Settings of all processes, read from the environment (`MALLORN_*`)."""

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from mallorn.core.address_checks import LAST_PORT, host_and_port
from mallorn.core.celery_settings import celery_settings
from mallorn.core.errors import InvalidRequest
from mallorn.core.fleet_key import KEY_FILE, FleetKey
from mallorn.core.redaction import hide, hide_password

SandboxMode = Literal["require", "best-effort", "off"]
DEFAULT_URL = "http://127.0.0.1:8000"
SECRETS: Final = ("api_key", "rpc_key", "oidc_client_secret")
URLS: Final = ("database_url", "redis_url", "artifacts", "recordings")  # may hold a password


def default_data_dir() -> Path:
    """Return the folder in which the embedded stack keeps its database and artifacts."""
    return Path.home() / ".local" / "share" / "mallorn"


class Settings(BaseSettings):
    """Settings of client, coordinator, control, workers and devices; each uses a part."""

    model_config = SettingsConfigDict(env_prefix="MALLORN_", extra="ignore", hide_input_in_errors=True)

    url: str | None = Field(None, description="Coordinator that the client and the CLI talk to.")
    api_key: SecretStr | None = Field(None, description="Key that the client presents.")
    data_dir: Path = Field(default_factory=default_data_dir, description="Home of the embedded stack.")
    database_url: str = Field("", description="SQLAlchemy URL; empty: SQLite in the data directory.")
    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        description="Broker; redis://, rediss:// or redis+socket://, or "
        "`sentinel://HOST:PORT,HOST:PORT/0?master_name=NAME`.",
    )
    tracker: str = Field("127.0.0.1:9190", description="host:port of the TVM RPC tracker.")
    rpc_key: SecretStr = Field(
        SecretStr(""),
        description="What tracker, devices and workers prove themselves with to each other; the same on all "
        "hosts, two with a comma while it is changed. Empty: `rpc.key` in the data directory, if there.",
    )
    artifacts: str = Field("", description="fsspec URL of the artifact store; empty: in the data directory.")
    api_keys: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict, description="name:sha256hex pairs, comma-separated; the name is the owner."
    )
    oidc_issuer: str = Field(
        "", description="OpenID Connect issuer that signs people in on the page; empty: keys alone do."
    )
    oidc_client_id: str = Field("", description="This service's client id there.")
    oidc_client_secret: SecretStr = Field(SecretStr(""), description="Its secret.")
    oidc_claim: str = Field(
        "email", description="Claim that names the owner; an `email` has to be verified there."
    )
    oidc_allowed: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Who may sign in so, with the scopes `read` and `submit`: owners and verified addresses "
        "(`ada@example.org`) and domains of verified addresses (`@example.org`), comma-separated. An issuer "
        "needs this, groups or admins.",
    )
    oidc_groups: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict,
        description="Scopes of the groups that may sign in so: `GROUP=SCOPE+SCOPE`, comma-separated, as "
        "`compilers=read+submit,operators=admin`.",
    )
    oidc_groups_claim: str = Field("groups", description="Claim that holds somebody's groups.")
    oidc_admins: Annotated[list[str], NoDecode] = Field(
        default_factory=list, description="Owners, comma-separated, who may do all when signed in so."
    )
    plugins: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Classes, comma-separated, that jobs may name besides those of installed packages: "
        "`MODULE:CLASS`, or `MODULE:*`; the same for coordinator, control and workers. `*`: any, as long as "
        "there is no API key, which `mallorn up` sets on loopback.",
    )
    recordings: str = Field(
        "",
        description="Directory, or fsspec URL of one, whose recordings jobs may replay by their names below "
        "it; the same for coordinator and workers. Empty: none. `*`: any file by its absolute path, as long "
        "as there is no API key, which `mallorn up` sets on loopback.",
    )
    shipped: bool = Field(
        True, description="Whether a database begins with the measurements and bases that come along."
    )
    host: str = Field("127.0.0.1", description="Address the coordinator binds.")
    port: int = Field(8000, ge=0, le=LAST_PORT, description="Port the coordinator binds.")
    max_model_bytes: int = Field(16 * 1024**3, description="Largest model upload accepted.")
    builders: int = Field(
        0,
        ge=0,
        description="Builder processes a worker keeps warm; 0: one a core that it may use and GiB of "
        "memory, and no more than the largest round has candidates (64).",
    )
    import_timeout_sec: float = Field(600.0, gt=0, description="Wall time a model import may take.")
    child_memory_bytes: int = Field(
        8 * 1024**3,
        description="Address space a compiler child may use; with a whole model eight times its size more.",
    )
    sandbox: SandboxMode | Literal[""] = Field(
        "",
        description="Walls around what handles strangers' models: `require` refuses to work where the kernel "
        "lacks one, `best-effort` takes those that it has, `off` none. Empty: `require` where callers need "
        "an API key and for devices that other machines reach, else `best-effort`. A worker knows the keys "
        "of the database: set it for workers where only the coordinator has MALLORN_API_KEYS.",
    )
    keep_jobs_days: float = Field(
        0.0, ge=0, description="Days after its end until a job is deleted, as `mallorn rm` does; 0: never."
    )
    keep_events_days: float = Field(
        0.0,
        ge=0,
        description="Days after a job's end until its events, its timeline and what its searchers learned "
        "are deleted; 0: never.",
    )
    keep_models_days: float = Field(
        0.0, ge=0, description="Days after its upload until a model without a job is deleted; 0: never."
    )
    keep_audit_days: float = Field(
        0.0, ge=0, description="Days until an entry of the audit log is deleted; 0: never."
    )
    keep_backups: int = Field(
        3,
        ge=0,
        description="Backups of a SQLite database that are kept, in `backups` beside it: one a day, and one "
        "before its tables change; 0: none is made.",
    )
    quota_jobs: int = Field(0, ge=0, description="Jobs that an owner may have under way; 0: any number.")
    quota_trials: int = Field(
        0, ge=0, description="Trials that an owner's jobs may have ahead of them together; 0: any number."
    )
    quota_model_bytes: int = Field(
        0, ge=0, description="Bytes that an owner's uploaded models may take; 0: any number."
    )
    quota_requests: int = Field(
        0, ge=0, description="Requests that a key may make in a minute, of each coordinator; 0: any number."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="How processes log: `text` for people, `json` for one object a line."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="What is logged: this and worse."
    )
    host_folder: str = Field(
        "",
        description="Directory of the locks by which workers and devices of one host take turns; containers "
        "of one host mount the same volume there. Empty: the directory for temporary files.",
    )
    device_wait_sec: float = Field(
        600.0, gt=0, description="How long a job waits for a device until it is paused."
    )
    lease_sec: float = Field(30.0, gt=0, description="How long a lease lasts without renewal.")

    @field_validator("log_level", mode="before")
    @classmethod
    def _in_small_letters(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _hide_secrets(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name in SECRETS:
            hide(values.get(name))
        for name in URLS:
            hide_password(values.get(name))
        return values

    @model_validator(mode="before")
    @classmethod
    def _drop_service_link(cls, values: dict[str, Any]) -> dict[str, Any]:
        # For a Service named mallorn, Kubernetes sets MALLORN_PORT=tcp://10.0.0.7:8000.
        if "://" in str(values.get("port", "")):
            del values["port"]
        return values

    @model_validator(mode="before")
    @classmethod
    def _split_api_keys(cls, values: dict[str, object]) -> dict[str, object]:
        keys = values.get("api_keys")
        if isinstance(keys, str):
            pairs = (item.partition(":") for item in keys.split(",") if item.strip())
            values["api_keys"] = {name.strip(): digest.strip().lower() for name, _, digest in pairs}
        return values

    @field_validator("oidc_groups", mode="before")
    @classmethod
    def _split_groups(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = (item.rpartition("=") for item in value.split(",") if item.strip())
        return {group.strip(): scopes.strip() for group, _, scopes in pairs}

    @field_validator("oidc_admins", "oidc_allowed", "plugins", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        return (
            [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
        )

    @field_validator("redis_url")
    @classmethod
    def _check_broker(cls, url: str) -> str:
        try:
            celery_settings(url)
        except InvalidRequest as error:
            raise ValueError(f"{error.message}: write {error.hint}") from error
        return url

    @field_validator("tracker")
    @classmethod
    def _check_tracker(cls, address: str) -> str:
        try:
            host_and_port(address)
        except InvalidRequest as error:
            raise ValueError("write HOST:PORT, as 127.0.0.1:9190") from error
        return address

    @model_validator(mode="after")
    def _fill_from_data_dir(self) -> Self:
        if not self.database_url:
            if "?" in str(self.data_dir):
                raise ValueError(
                    f"{self.data_dir} has a question mark, at which a database's URL ends the path"
                )
            self.database_url = f"sqlite:///{self.data_dir / 'mallorn.db'}"
        if not self.artifacts:
            self.artifacts = str(self.data_dir / "artifacts")
        return self

    @property
    def fleet_key(self) -> FleetKey:
        """The fleet's key. Raises InvalidRequest if it is too short or its file is empty."""
        text = self.rpc_key.get_secret_value()
        with suppress(FileNotFoundError, NotADirectoryError):  # an unreadable file raises
            text = text or (self.data_dir / KEY_FILE).read_text() or "\n"
        hide(text)
        return FleetKey(text)

    def sandbox_mode(self, asks_for_keys: bool = False) -> SandboxMode:
        """Return the configured mode, else `require` if callers need keys or `best-effort`."""
        needs_keys = asks_for_keys or bool(self.api_keys or self.oidc_issuer)
        return self.sandbox or ("require" if needs_keys else "best-effort")

    @property
    def tracker_address(self) -> tuple[str, int]:
        return host_and_port(self.tracker)


@lru_cache
def settings() -> Settings:
    """Return the settings of this process, which are read once."""
    return Settings()
