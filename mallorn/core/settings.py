"""Settings of all processes, read from `MALLORN_*` variables; detects unknown variables."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from mallorn.core.address_checks import LAST_PORT, host_and_port
from mallorn.core.errors import InvalidRequest
from mallorn.core.fleet_key import KEY_FILE, FleetKey
from mallorn.core.queues import celery_settings
from mallorn.core.redaction import hide, hide_password
from mallorn.core.states import WRITE, DatasetUse

SandboxMode = Literal["require", "require-files", "best-effort", "off"]
DEFAULT_URL = "http://127.0.0.1:8000"
SECRETS: Final = ("api_key", "rpc_key", "oidc_client_secret")
URLS: Final = ("database_url", "redis_url", "artifacts", "recordings")  # may hold a password


def default_data_dir() -> Path:
    """Return the folder where `mallorn up` keeps its database and artifacts by default."""
    return Path.home() / ".local" / "share" / "mallorn"


class Settings(BaseSettings):
    """Settings of clients and of all processes of the service; each uses a part of them."""

    model_config = SettingsConfigDict(env_prefix="MALLORN_", extra="ignore", hide_input_in_errors=True)

    url: str | None = Field(None, description="Coordinator that the client and the CLI talk to.")
    api_key: SecretStr | None = Field(None, description="API key that the client sends.")
    data_dir: Path = Field(default_factory=default_data_dir, description="Directory of the embedded stack.")
    database_url: str = Field("", description="SQLAlchemy URL; empty: SQLite in the data directory.")
    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        description="Broker; redis://, rediss:// or redis+socket://, or "
        "`sentinel://HOST:PORT,HOST:PORT/0?master_name=NAME`.",
    )
    tracker: str = Field("127.0.0.1:9190", description="host:port of the TVM RPC tracker.")
    rpc_key: SecretStr = Field(
        SecretStr(""),
        description="Key by which tracker, devices and workers authenticate each other; the same on "
        "all hosts, two separated by a comma during a change. Empty: `rpc.key` in the data "
        "directory, if any.",
    )
    artifacts: str = Field("", description="fsspec URL of the artifact store; empty: in the data directory.")
    api_keys: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict, description="name:sha256hex pairs, comma-separated; the name is the owner."
    )
    oidc_issuer: str = Field(
        "", description="OpenID Connect issuer that signs users in on the page; empty: only keys do."
    )
    oidc_client_id: str = Field("", description="Client id of this service at the issuer.")
    oidc_client_secret: SecretStr = Field(SecretStr(""), description="Client secret at the issuer.")
    oidc_claim: str = Field(
        "email", description="Claim that names the owner; the issuer must have verified an `email`."
    )
    oidc_allowed: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Who may sign in at the issuer, with the scopes `read` and `submit`: owners and "
        "verified addresses (`ada@example.org`) and domains of verified addresses "
        "(`@example.org`), comma-separated. An issuer needs this, groups or admins.",
    )
    oidc_groups: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict,
        description="Scopes of the groups that may sign in at the issuer: `GROUP=SCOPE+SCOPE`, "
        "comma-separated, such as `compilers=read+submit,operators=admin`.",
    )
    oidc_groups_claim: str = Field("groups", description="Claim that lists a user's groups.")
    oidc_admins: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Owners, comma-separated, who get all scopes when they sign in there.",
    )
    plugins: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Classes, comma-separated, that jobs may name besides those of installed packages: "
        "`MODULE:CLASS`, or `MODULE:*`; the same for coordinator, control and workers. "
        "`*`: any, while there is no API key; `mallorn up` on loopback sets this.",
    )
    recordings: str = Field(
        "",
        description="Directory, or fsspec URL of one, with recordings that jobs replay by their names "
        "below it; the same for coordinator and workers. Empty: none. `*`: any file by its "
        "absolute path, while there is no API key; `mallorn up` on loopback sets this.",
    )
    shipped: bool = Field(
        True, description="Whether a new database gets the shipped measurements and base models."
    )
    dataset: DatasetUse = Field(
        WRITE, description="Most that a job may do with the dataset: `write`, `read` or `off`, as its option."
    )
    host: str = Field("127.0.0.1", description="Address that the coordinator binds.")
    port: int = Field(8000, ge=0, le=LAST_PORT, description="Port that the coordinator binds.")
    max_model_bytes: int = Field(16 * 1024**3, description="Largest model upload, in bytes.")
    builders: int = Field(
        0,
        ge=0,
        description="Builder processes of a worker; 0: one per usable core and GiB of memory, at most "
        "as many as the largest round has candidates (64).",
    )
    import_timeout_sec: float = Field(600.0, gt=0, description="Time limit of a model import, in seconds.")
    child_memory_bytes: int = Field(
        8 * 1024**3,
        description="Address space of a compiler process in bytes; eight times a model's size is added.",
    )
    sandbox: SandboxMode | Literal[""] = Field(
        "",
        description="Sandbox of processes that handle untrusted models: `require` refuses to work if "
        "the kernel lacks a part, `require-files` if it lacks Landlock or seccomp, "
        "`best-effort` uses the available parts, `off` none. Empty: `require` if callers need "
        "an API key and for devices that other machines reach (`require-files` on a private "
        "network), else `best-effort`. A worker knows the keys of the database: set it for "
        "workers if only the coordinator has MALLORN_API_KEYS.",
    )
    keep_jobs_days: float = Field(
        0.0, ge=0, description="Days from a job's end until it is deleted, as by `mallorn jobs rm`; 0: never."
    )
    keep_events_days: float = Field(
        0.0,
        ge=0,
        description="Days from a job's end until its events, timeline and searchers' states are "
        "deleted; 0: never.",
    )
    keep_models_days: float = Field(
        0.0, ge=0, description="Days from upload until a model without a job is deleted; 0: never."
    )
    keep_audit_days: float = Field(
        0.0, ge=0, description="Days until an audit-log entry is deleted; 0: never."
    )
    keep_audit_entries: int = Field(
        1_000_000,
        ge=0,
        description="Maximum number of audit-log entries; older ones are deleted; 0: no limit.",
    )
    keep_backups: int = Field(
        3,
        ge=0,
        description="Number of kept backups of a SQLite database, in `backups` next to it: one per "
        "day, and one before each migration; 0: no backups.",
    )
    quota_jobs: int = Field(0, ge=0, description="Maximum number of active jobs per owner; 0: no limit.")
    quota_trials: int = Field(
        0, ge=0, description="Maximum of trials still ahead of an owner's active jobs together; 0: no limit."
    )
    quota_model_bytes: int = Field(
        0, ge=0, description="Maximum total size of an owner's uploaded models, in bytes; 0: no limit."
    )
    quota_requests: int = Field(
        0, ge=0, description="Maximum of requests per key and minute at each coordinator; 0: no limit."
    )
    quota_streams: int = Field(
        2_000,
        ge=0,
        description="Maximum of event streams that a key follows at once at each coordinator; 0: no limit.",
    )
    quota_uploads: int = Field(
        16,
        ge=0,
        description="Maximum of an owner's running uploads at each coordinator, and of unfinished uploads in "
        "parts; 0: no limit. After a day unfinished ones are deleted.",
    )
    quota_targets: int = Field(
        200, ge=0, description="Maximum of different targets that an owner's jobs name; 0: no limit."
    )
    simulated_device_sec: float | None = Field(
        None,
        ge=0,
        description="Largest option `simulated.device_sec` of a job: a simulated candidate occupies a "
        "worker for that time. Default: 60 while there is no API key, else 0.",
    )
    max_connections: int = Field(
        10_000,
        ge=2,
        description="Maximum of connections to a coordinator. Above it, or half of the host's limit of open "
        "files if that is less, the connection that waited longest for its client is closed.",
    )
    max_connections_per_address: int = Field(
        1_000,
        ge=0,
        description="Maximum of connections to a coordinator from an IP address or an IPv6 network of 64 "
        "bits, but at most half of all. Proxies (FORWARDED_ALLOW_IPS) are not limited. 0: half of all.",
    )
    client_wait_sec: float = Field(
        30.0,
        gt=0,
        description="Seconds that a coordinator waits for a request's head, and for its body plus one for "
        "every 4 KiB. A client that does not read 64 KiB of a response in that time is cut off.",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Log format: `text` for people, `json` for one object per line."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe level that is logged."
    )
    host_folder: str = Field(
        "",
        description="Directory of the locks by which workers and devices of a host take turns; "
        "containers of one host must mount the same volume there. Empty: the one for "
        "temporary files.",
    )
    device_wait_sec: float = Field(
        600.0, gt=0, description="Seconds that a job waits for a device before it is paused."
    )
    lease_sec: float = Field(30.0, gt=0, description="Seconds that a lease lasts without renewal.")

    @field_validator("log_level", mode="before")
    @classmethod
    def _in_small_letters(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _hide_secrets_and_drop_service_link(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name in SECRETS:
            hide(values.get(name))
        for name in URLS:
            hide_password(values.get(name))
        # For a Service named mallorn, Kubernetes sets MALLORN_PORT=tcp://10.0.0.7:8000.
        if "://" in str(values.get("port", "")):
            del values["port"]
        return values

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split_api_keys(cls, keys: object) -> object:
        if not isinstance(keys, str):
            return keys
        pairs = (item.partition(":") for item in keys.split(",") if item.strip())
        return {name.strip(): digest.strip().lower() for name, _, digest in pairs}

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
                    f"{self.data_dir} has a question mark, which would end the path in the database's URL"
                )
            self.database_url = f"sqlite:///{self.data_dir / 'mallorn.db'}"
        if not self.artifacts:
            self.artifacts = str(self.data_dir / "artifacts")
        return self

    @property
    def fleet_key(self) -> FleetKey:
        """Key of devices and workers. Raises InvalidRequest if it is short or blank."""
        text = self.rpc_key.get_secret_value()
        with suppress(FileNotFoundError, NotADirectoryError):  # an unreadable file raises
            text = text or (self.data_dir / KEY_FILE).read_text() or "\n"
        hide(text)
        return FleetKey(text)

    def sandbox_mode(self, needs_api_keys: bool = False) -> SandboxMode:
        """Return the mode set, else `require` if callers need keys, else `best-effort`."""
        needs_keys = needs_api_keys or bool(self.api_keys or self.oidc_issuer)
        return self.sandbox or ("require" if needs_keys else "best-effort")

    @property
    def tracker_address(self) -> tuple[str, int]:
        return host_and_port(self.tracker)


@lru_cache
def settings() -> Settings:
    """Return the settings of this process; the environment is read only once."""
    return Settings()


PREFIX: Final = str(Settings.model_config["env_prefix"])
#: Variables that our processes set for each other.
_BETWEEN_PROCESSES: Final = frozenset(
    PREFIX + name for name in ("CHILD_FD", "CHILD_SANDBOX", "CODE", "GATEWAY_FD", "KEEPER_FD", "READY_FILE")
)


def unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence per MALLORN_* variable that nothing reads; suggest a similar one."""
    settings = {PREFIX + name.upper() for name in Settings.model_fields}
    for name, value in sorted(environ.items()):
        is_unread = name.startswith(PREFIX) and name not in settings | _BETWEEN_PROCESSES
        if is_unread and not is_service_link(name, value):
            similar = get_close_matches(name, settings, 1)
            yield f"nothing reads {name}" + (f"; did you mean {similar[0]}?" if similar else "")


def is_service_link(name: str, value: str) -> bool:
    """Return whether Kubernetes set a variable for a Service, such as MALLORN_PORT_80_TCP.
    No setting has such a name except MALLORN_PORT, which is checked by its value."""
    has_port = any(word == "PORT" and number.isdigit() for word, number in pairwise(name.split("_")))
    is_url = name.endswith("_PORT") and "://" in value
    return has_port or is_url or "_SERVICE_PORT" in name or name.endswith("_SERVICE_HOST")
