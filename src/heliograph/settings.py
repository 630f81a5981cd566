"""How this process runs: from flags, the environment, systemd's credentials, the settings file and defaults, in that
order.
"""

import base64
import binascii
import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from heliograph.rules.groups import GroupRole, read_group_roles, write_group_roles

PREFIX = "HELIOGRAPH_"
CONFIG = "HELIOGRAPH_CONFIG"  # the settings file, where no --config names one
NOT_SETTINGS = (CONFIG, "HELIOGRAPH_URL", "HELIOGRAPH_KEY", "HELIOGRAPH_FROM")  # clients may run in the same shell
SECRETS = ("secret", "secret_old", "metrics_token", "oidc_client_secret", "s3_secret_key")
TOKEN_MIN = 16
# Least and most of each number.
RANGES = {
    "processes": (1, 64),
    "database_pool": (2, 1000),
    "database_timeout_s": (1, 600),
    "database_connect_s": (1, 60),
    "body_memory_mb": (16, 4096),
    "connections_max": (16, 65536),
    "watchdog_s": (0, 3600),
    "stop_delay_ms": (0, 3_600_000),
    "simulator_step_ms": (0, 3_600_000),
}


class BadSetting(Exception):
    """A setting is unknown or malformed; the message names it and says what is expected."""


class Origin(msgspec.Struct, frozen=True):
    """Where a value came from; `name` is the flag, variable or file."""

    kind: Literal["default", "flag", "environment", "file", "credential", "config"]
    name: str = ""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: int = 8700  # 0: any free one
    database: str = "sqlite:///heliograph.db"  # or postgresql://…
    checkpoint: Literal["own", "external"] = "own"  # who brings SQLite's log into its file; external: Litestream
    data: Path = Path("heliograph-data")  # folder for blobs, locks and the generated secret
    secret: bytes | None = None  # 32 bytes; None: generated at the first start and stored in the data folder
    secret_old: bytes | None = None  # the one before: opens what `secret` did not seal, while it is rotated
    attachments: str = ""  # s3://bucket/prefix; empty: PostgreSQL, or the data folder beside SQLite
    s3_endpoint: str = ""  # empty: Amazon's
    s3_region: str = "us-east-1"
    s3_access_key: str = ""  # empty: that of the environment, or of the machine's role
    s3_secret_key: str = ""
    public_url: str = ""  # without a trailing slash; empty: http://host:port
    health: tuple[str, int] | None = None  # health checks and metrics alone, also of a worker; None: off
    bounce_listen: tuple[str, int] | None = None  # inbound SMTP; None: off
    submission_listen: tuple[tuple[str, int], ...] = ()  # SMTP with STARTTLS; none: off
    submission_tls_listen: tuple[tuple[str, int], ...] = ()  # SMTP inside TLS
    submission_cert: Path | None = None  # PEM, with its chain
    submission_key: Path | None = None
    resolver: tuple[str, int] | None = None  # the DNS server to query about sending domains; None: the zones' own
    webhook_allow_private: tuple[str, ...] = ()  # private ranges that webhooks may reach
    trusted_proxies: tuple[str, ...] = ()  # ranges of proxies whose X-Forwarded-For is trusted
    metrics_allow: tuple[str, ...] = ()  # ranges besides loopback that may read /metrics
    metrics_token: str = ""  # gives access to /metrics from anywhere; empty: none
    oidc_issuer: str = ""  # of the identity provider that people may sign in with; empty: none
    oidc_client_id: str = ""
    oidc_client_secret: str = ""  # empty: a public client
    oidc_name: str = ""  # on the button; empty: the provider's host
    oidc_scopes: str = "openid email profile"
    oidc_groups_claim: str = "groups"
    oidc_roles: tuple[GroupRole, ...] = ()
    oidc_email_trusted: bool = False  # an address without a word whether it is verified
    password_sign_in: bool = True
    processes: int = 1  # of `serve`; on PostgreSQL one for each core unless it is given
    stop_delay_ms: int = 5_000  # from SIGTERM on, for proxies to see that the process is not ready
    database_pool: int = 8  # connections of a process to PostgreSQL, besides the one that listens
    database_timeout_s: int = 10  # for a statement of PostgreSQL, or for a free connection
    database_connect_s: int = 3  # for a connection to PostgreSQL; several hosts share it
    body_memory_mb: int = 96  # MiB of large bodies that a process reads at once; others wait
    connections_max: int = 4096  # HTTP connections of a process; one more is answered 503
    watchdog_s: int = 60  # after which a process whose event loop is stuck ends itself; 0: never
    log_format: Literal["text", "json"] = "text"
    simulator_step_ms: int = 200  # between two states of a simulated message
    sources: dict[str, Origin] = {}  # of what is not a default, by name

    @property
    def base_url(self) -> str:
        return self.public_url or f"http://{self.listen}"

    @property
    def listen(self) -> str:
        return joined(self.host, self.port)

    def submission(self) -> list[str]:
        """Where mail is taken by SMTP, and how it is encrypted; for people."""
        clear = "STARTTLS" if self.submission_cert else "no TLS, from this machine alone"
        return [
            *(f"{joined(*address)} ({clear})" for address in self.submission_listen),
            *(f"{joined(*address)} (TLS)" for address in self.submission_tls_listen),
        ]


# The environment variable of a setting is HELIOGRAPH_ and the name in capitals; _FILE after it names a file.
NAMES = (
    "listen",
    "database",
    "checkpoint",
    "data",
    "secret",
    "secret_old",
    "attachments",
    "s3_endpoint",
    "s3_region",
    "s3_access_key",
    "s3_secret_key",
    "public_url",
    "health",
    "bounce_listen",
    "submission_listen",
    "submission_tls_listen",
    "submission_cert",
    "submission_key",
    "resolver",
    "webhook_allow_private",
    "trusted_proxies",
    "metrics_allow",
    "metrics_token",
    "oidc_issuer",
    "oidc_client_id",
    "oidc_client_secret",
    "oidc_name",
    "oidc_scopes",
    "oidc_groups_claim",
    "oidc_roles",
    "oidc_email_trusted",
    "password_sign_in",
    "processes",
    "stop_delay_ms",
    "database_pool",
    "database_timeout_s",
    "database_connect_s",
    "body_memory_mb",
    "connections_max",
    "watchdog_s",
    "log_format",
    "simulator_step_ms",
)

NEW_NAMES = {"mail_listen": "bounce_listen"}  # mail of people comes in there too, not bounces alone


def read_settings(
    flags: Mapping[str, str | None], environment: Mapping[str, str] | None = None, file: Path | None = None
) -> Settings:
    environment = os.environ if environment is None else environment
    given = {
        **_from_file(file),
        **_from_credentials(environment.get("CREDENTIALS_DIRECTORY")),
        **_from_environment(environment),
        **{
            name: (flag, Origin("flag", f"--{name.replace('_', '-')}"))
            for name, flag in flags.items()
            if flag is not None
        },
    }
    fields: dict[str, Any] = {"sources": {name: source for name, (_, source) in given.items()}}
    for name, (value, source) in given.items():
        try:
            fields |= _read(name, value)
        except ValueError as error:
            # Do not repeat the value of a secret: this line may end up in a log.
            shown = "" if name in SECRETS or "@" in value else f"={value!r}"
            raise BadSetting(f"{source.name}{shown}: {error}") from None
    settings = Settings(**fields)
    if bool(settings.s3_access_key) != bool(settings.s3_secret_key):
        raise BadSetting("s3_access_key and s3_secret_key belong together: set both, or neither")
    if (settings.submission_cert is None) != (settings.submission_key is None):
        raise BadSetting("submission_cert and submission_key belong together: set both, or neither")
    if settings.submission_tls_listen and settings.submission_cert is None:
        raise BadSetting("submission_tls_listen needs a certificate: set submission_cert and submission_key")
    if bool(settings.oidc_issuer) != bool(settings.oidc_client_id):
        raise BadSetting("oidc_issuer and oidc_client_id belong together: set both, or neither")
    if not settings.password_sign_in and not settings.oidc_issuer:
        raise BadSetting("password_sign_in=off needs another way to sign in: set oidc_issuer")
    if "processes" in given or settings.database.startswith("sqlite:"):
        return settings
    return msgspec.structs.replace(settings, processes=min(len(os.sched_getaffinity(0)), RANGES["processes"][1]))


def write_settings(settings: Settings) -> dict[str, str]:
    """Each setting as it is written, secrets too; empty where there is none."""
    return {name: _write(getattr(settings, name)) for name in NAMES}


def _write(value: Any) -> str:
    match value:
        case None:
            return ""
        case bytes():
            return base64.b64encode(value).decode()
        case bool():
            return "on" if value else "off"
        case (GroupRole(), *_):
            return write_group_roles(value)
        case (str(host), int(port)):
            return joined(host, port)
        case tuple():
            return ",".join(map(_write, value))
        case _:
            return str(value)


Given = dict[str, tuple[str, Origin]]


def _from_environment(environment: Mapping[str, str]) -> Given:
    """HELIOGRAPH_NAME, or HELIOGRAPH_NAME_FILE with the path of a file that holds the value."""
    given: Given = {}
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS:
            continue
        name, kept = _named(variable.removeprefix(PREFIX).lower())
        if name not in NAMES:
            raise BadSetting(f"{variable} is not a setting. Known: {', '.join(PREFIX + n.upper() for n in NAMES)}")
        if name in given:
            raise BadSetting(f"{given[name][1].name} and {variable}: only one of them can be given")
        if kept:
            given[name] = (_text(Path(value), variable), Origin("file", f"{variable}={value}"))
        else:
            given[name] = (value, Origin("environment", variable))
    return given


def _named(given: str) -> tuple[str, bool]:
    """The setting, and whether its value is in a file."""
    known = {*NAMES, *NEW_NAMES}
    kept = given not in known and given.removesuffix("_file") in known
    name = given.removesuffix("_file") if kept else given
    return NEW_NAMES.get(name, name), kept


def _from_credentials(folder: str | None) -> Given:
    """What systemd's LoadCredential= puts there under the name of a setting; other files are not ours."""
    paths = [Path(folder, name) for name in NAMES] if folder else []
    return {path.name: (_text(path, "credential"), Origin("credential", str(path))) for path in paths if path.is_file()}


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise BadSetting(f"{what} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadSetting(f"{what} {path}: expected text") from None


def _from_file(file: Path | None) -> Given:
    if file is None:
        return {}
    try:
        loaded = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise BadSetting(f"{file}: no such settings file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{file}: {error}") from None
    given: Given = {}
    for written, value in loaded.items():
        name, kept = _named(written)
        if name not in NAMES:
            raise BadSetting(f"{file}: {name} is not a setting. Known: {', '.join(NAMES)}")
        if name in given:
            raise BadSetting(f"{file}: {name} and {name}_file: only one of them can be given")
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise BadSetting(f"{file}: {written}: expected a string or a number")
        text = _text(Path(str(value)), f"{file}: {written}") if kept else str(value)
        given[name] = (text, Origin("config", f"{file}: {written}"))
    return given


def _read(name: str, value: str) -> dict[str, Any]:
    match name:
        case "listen":
            host, port = _address(value)
            return {"host": host, "port": port}
        case "database":
            return {"database": _database(value)}
        case "checkpoint":
            if value not in ("own", "external"):
                raise ValueError("expected own, or external where Litestream copies the database")
            return {"checkpoint": value}
        case "data":
            if not value:
                raise ValueError("expected a folder")
            return {"data": Path(value)}
        case "secret" | "secret_old":
            return {name: _secret(value)}
        case "attachments":
            return {"attachments": _bucket(value)}
        case "s3_endpoint":
            return {"s3_endpoint": _url(value) if value else ""}
        case "s3_region" | "s3_access_key" | "s3_secret_key":
            return {name: value}
        case "public_url":
            return {"public_url": _url(value)}
        case "health" | "bounce_listen":
            if name == "health" and value.startswith(":"):
                value = f"0.0.0.0{value}"
            return {name: None if value in ("", "off") else _address(value)}
        case "submission_listen" | "submission_tls_listen":
            given = [] if value in ("", "off") else value.split(",")
            return {name: tuple(_address(part.strip()) for part in given)}
        case "submission_cert" | "submission_key":
            return {name: Path(value) if value else None}
        case "resolver":
            return {"resolver": _address(value) if value else None}
        case "log_format":
            if value not in ("text", "json"):
                raise ValueError("expected text or json")
            return {"log_format": value}
        case "metrics_token":
            if value and not (len(value) >= TOKEN_MIN and value.isascii() and value.isprintable() and " " not in value):
                raise ValueError(f"expected {TOKEN_MIN} characters or more without blanks (openssl rand -hex 32)")
            return {"metrics_token": value}
        case "oidc_issuer":
            return {"oidc_issuer": _issuer(value) if value else ""}
        case "oidc_client_id" | "oidc_client_secret" | "oidc_name" | "oidc_scopes" | "oidc_groups_claim":
            if not value.isprintable() or (name == "oidc_scopes" and "openid" not in value.split()):
                raise ValueError("expected one line" + (" with openid in it" if name == "oidc_scopes" else ""))
            return {name: value.strip()}
        case "oidc_roles":
            return {"oidc_roles": read_group_roles(value)}
        case "oidc_email_trusted" | "password_sign_in":
            if value not in ("on", "off"):
                raise ValueError("expected on or off")
            return {name: value == "on"}
        case "webhook_allow_private" | "trusted_proxies" | "metrics_allow":
            ranges = [part.strip() for part in value.split(",") if part.strip()]
            for part in ranges:
                ipaddress.ip_network(part)
            return {name: tuple(ranges)}
        case _:
            least, most = RANGES[name]
            if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
                raise ValueError(f"expected a whole number from {least} to {most}")
            return {name: int(value)}


def _address(value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("expected host:port, for example 127.0.0.1:8700")
    return host, int(port)


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _database(value: str) -> str:
    if value.startswith("sqlite:///") and len(value) > len("sqlite:///"):
        return value
    if value.startswith(("postgresql://", "postgres://")):
        return value
    raise ValueError("expected sqlite:///path/to/file.db or postgresql://user@host,host/name")


def _bucket(value: str) -> str:
    parts = urlsplit(value)
    if value and (parts.scheme != "s3" or not parts.netloc or parts.netloc != parts.hostname or parts.query):
        raise ValueError("expected s3://bucket or s3://bucket/prefix")
    return value.rstrip("/")


def _secret(value: str) -> bytes:
    try:
        secret = base64.b64decode(value, validate=True)
    except binascii.Error:
        secret = b""
    if len(secret) != 32:
        raise ValueError("expected 32 bytes in base64 (openssl rand -base64 32)")
    return secret


def _issuer(value: str) -> str:
    """As the provider writes it: a slash at the end is part of its name."""
    parts = urlsplit(value)
    is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not (parts.scheme == "https" or (parts.scheme == "http" and is_here)) or not parts.hostname:
        raise ValueError("expected an address such as https://id.example.com; http only on this machine")
    if parts.query or parts.fragment or parts.username or not value.isascii() or " " in value:
        raise ValueError("expected an address without a query, such as https://id.example.com")
    return value


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("expected an address such as https://mail.example.com")
    return value.rstrip("/")
