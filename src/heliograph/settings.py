"""Settings of a process. Sources by precedence: flags, environment, systemd credentials, settings file, defaults."""

import base64
import binascii
import ipaddress
import os
import tomllib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from heliograph.domain.accounts.idp_groups import GroupRole, read_group_roles, write_group_roles

PREFIX = "HELIOGRAPH_"
CONFIG = "HELIOGRAPH_CONFIG"  # path of the settings file, unless --config is given
# Used by clients, which may run in the same shell
NOT_SETTINGS = (CONFIG, "HELIOGRAPH_URL", "HELIOGRAPH_KEY", "HELIOGRAPH_FROM")
TOKEN_MIN = 16
PROCESSES_MAX = 64


class BadSetting(Exception):
    """A setting is unknown or malformed; the message names it and the expected format."""


class Origin(msgspec.Struct, frozen=True):
    """Source of a setting; `name` is the flag, variable or file."""

    kind: Literal["default", "flag", "environment", "file", "credential", "config"]
    name: str = ""


def _address(value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("expected host:port, for example 127.0.0.1:8700")
    return host, int(port)


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
    """Parse the issuer URL unchanged: a trailing slash is part of the issuer's name."""
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


def _line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("expected one line")
    return value.strip()


def _scopes(value: str) -> str:
    if not value.isprintable() or "openid" not in value.split():
        raise ValueError("expected one line with openid in it")
    return value.strip()


def _folder(value: str) -> Path:
    if not value:
        raise ValueError("expected a folder")
    return Path(value)


def _token(value: str) -> str:
    if value and not (len(value) >= TOKEN_MIN and value.isascii() and value.isprintable() and " " not in value):
        raise ValueError(f"expected {TOKEN_MIN} characters or more without blanks (openssl rand -hex 32)")
    return value


def _switch(value: str) -> bool:
    if value not in ("on", "off"):
        raise ValueError("expected on or off")
    return value == "on"


def _ranges(value: str) -> tuple[str, ...]:
    ranges = [part.strip() for part in value.split(",") if part.strip()]
    for part in ranges:
        ipaddress.ip_network(part)
    return tuple(ranges)


def _listener(value: str) -> tuple[str, int] | None:
    return None if value in ("", "off") else _address(value)


def _health(value: str) -> tuple[str, int] | None:
    return _listener(f"0.0.0.0{value}" if value.startswith(":") else value)


def _listeners(value: str) -> tuple[tuple[str, int], ...]:
    given = [] if value in ("", "off") else value.split(",")
    return tuple(_address(part.strip()) for part in given)


class Flag(msgspec.Struct, frozen=True):
    metavar: str
    about: str
    usual: str  # default, as shown in the help


class SettingForm(msgspec.Struct, frozen=True):
    """Format of a setting; `name` if it differs from the field's name."""

    read: Callable[[str], Any] = str  # parser; its ValueError says what is expected
    secret: bool = False
    flag: Flag | None = None
    name: str = ""


def _or(read: Callable[[str], Any], nothing: Any) -> SettingForm:
    """Return a form that parses a value with `read`; an empty value becomes `nothing`."""
    return SettingForm(lambda value: read(value) if value else nothing)


def _one_of(wanted: str, *words: str) -> SettingForm:
    def read(value: str) -> str:
        if value not in words:
            raise ValueError(f"expected {wanted}")
        return value

    return SettingForm(read)


def _between(least: int, most: int, flag: Flag | None = None) -> SettingForm:
    def read(value: str) -> int:
        if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
            raise ValueError(f"expected a whole number from {least} to {most}")
        return int(value)

    return SettingForm(read, flag=flag)


Text = Annotated[str, SettingForm()]
Line = Annotated[str, SettingForm(_line)]
Switch = Annotated[bool, SettingForm(_switch)]
SecretKey = Annotated[bytes | None, SettingForm(_secret, secret=True)]
File = Annotated[Path | None, _or(Path, None)]
Ranges = Annotated[tuple[str, ...], SettingForm(_ranges)]
Addresses = Annotated[tuple[tuple[str, int], ...], SettingForm(_listeners)]

_LISTEN = Flag("HOST:PORT", "Where to answer HTTP.", "127.0.0.1:8700")
_DATABASE = Flag("URL", "sqlite:///path/to/file.db or postgresql://user@host,host/name.", "sqlite:///heliograph.db")
_DATA = Flag("FOLDER", "Attachments and the generated secret.", "heliograph-data")
_PUBLIC_URL = Flag("URL", "How the world reaches this service.", "the listen address")
_HEALTH = Flag("HOST:PORT", "Health checks and metrics alone, also of a worker; :PORT on every address.", "none")
_PROCESSES = Flag("N", "How many processes share the work.", "one for each core on PostgreSQL, 1 on SQLite")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. The annotation of each field defines its parser, environment variable and flag."""

    host: Annotated[str, SettingForm(_address, flag=_LISTEN, name="listen")] = "127.0.0.1"
    port: int = 8700  # 0 for any free port
    database: Annotated[str, SettingForm(_database, flag=_DATABASE)] = "sqlite:///heliograph.db"
    checkpoint: Annotated[  # who checkpoints the SQLite WAL; external: Litestream
        Literal["own", "external"],
        _one_of("own, or external where Litestream copies the database", "own", "external"),
    ] = "own"
    data: Annotated[Path, SettingForm(_folder, flag=_DATA)] = Path("heliograph-data")  # blobs, locks and the secret
    secret: SecretKey = None  # 32 bytes; if None, generated at the first start and stored in the data folder
    secret_old: SecretKey = None  # previous secret, used for decryption during a rotation
    # s3:// URL; if empty, PostgreSQL, or the data folder with SQLite
    attachments: Annotated[str, SettingForm(_bucket)] = ""
    s3_endpoint: Annotated[str, _or(_url, "")] = ""  # Amazon's if empty
    s3_region: Text = "us-east-1"
    s3_access_key: Text = ""  # if empty, from the environment or the machine's role
    s3_secret_key: Annotated[str, SettingForm(secret=True)] = ""
    # Without trailing slash; http://host:port if empty
    public_url: Annotated[str, SettingForm(_url, flag=_PUBLIC_URL)] = ""
    health: Annotated[tuple[str, int] | None, SettingForm(_health, flag=_HEALTH)] = None  # off if None
    bounce_listen: Annotated[tuple[str, int] | None, SettingForm(_listener)] = None  # inbound SMTP; off if None
    submission_listen: Addresses = ()  # SMTP with STARTTLS; off if empty
    submission_tls_listen: Addresses = ()  # SMTP with implicit TLS
    submission_cert: File = None  # PEM with certificate chain
    submission_key: File = None
    # DNS server for checks of sending domains; if None, the authoritative servers of each zone.
    resolver: Annotated[tuple[str, int] | None, _or(_address, None)] = None
    webhook_allow_private: Ranges = ()  # private IP ranges that webhooks may reach
    trusted_proxies: Ranges = ()  # IP ranges of proxies whose X-Forwarded-For is trusted
    metrics_allow: Ranges = ()  # IP ranges besides loopback that may read /metrics
    # Permits reading /metrics from any address; off if empty
    metrics_token: Annotated[str, SettingForm(_token, secret=True)] = ""
    # Identity provider for sign-in; off if the issuer is empty.
    oidc_issuer: Annotated[str, _or(_issuer, "")] = ""
    oidc_client_id: Line = ""
    oidc_client_secret: Annotated[str, SettingForm(_line, secret=True)] = ""  # empty for a public client
    oidc_name: Line = ""  # text of the sign-in button; the provider's host if empty
    oidc_scopes: Annotated[str, SettingForm(_scopes)] = "openid email profile"
    oidc_groups_claim: Line = "groups"
    oidc_roles: Annotated[tuple[GroupRole, ...], SettingForm(read_group_roles)] = ()
    oidc_email_trusted: Switch = False  # trust email addresses without an email_verified claim
    password_sign_in: Switch = True
    # Number of processes of `serve`; default on PostgreSQL: one per core.
    processes: Annotated[int, _between(1, PROCESSES_MAX, _PROCESSES)] = 1
    # Delay after SIGTERM in which proxies see that the process is not ready.
    stop_delay_ms: Annotated[int, _between(0, 3_600_000)] = 5_000
    # PostgreSQL connections per process, besides the one for LISTEN.
    database_pool: Annotated[int, _between(2, 1000)] = 8
    # Timeout of a PostgreSQL statement, or for a free connection
    database_timeout_s: Annotated[int, _between(1, 600)] = 10
    database_connect_s: Annotated[int, _between(1, 60)] = 3  # timeout for connecting to PostgreSQL
    # MiB of large request bodies that a process reads at once; further requests wait.
    body_memory_mb: Annotated[int, _between(16, 4096)] = 96
    # HTTP connections per process; further ones receive 503
    connections_max: Annotated[int, _between(16, 65536)] = 4096
    # A process whose event loop is stuck for this long exits; 0 disables the watchdog.
    watchdog_s: Annotated[int, _between(0, 3600)] = 60
    log_format: Annotated[Literal["text", "json"], _one_of("text or json", "text", "json")] = "text"
    simulator_step_ms: Annotated[int, _between(0, 3_600_000)] = 200  # delay between two states of a simulated message
    sources: dict[str, Origin] = {}  # setting name → source, for values that are not defaults

    @property
    def base_url(self) -> str:
        return self.public_url or f"http://{self.listen}"

    @property
    def listen(self) -> str:
        return joined(self.host, self.port)

    def submission(self) -> list[str]:
        """Return the SMTP submission addresses and their encryption, as text for people."""
        clear = "STARTTLS" if self.submission_cert else "no TLS, from this machine alone"
        return [
            *(f"{joined(*address)} ({clear})" for address in self.submission_listen),
            *(f"{joined(*address)} (TLS)" for address in self.submission_tls_listen),
        ]


# By name. The environment variable is HELIOGRAPH_ and the name in capitals; with suffix _FILE it names a file.
SETTINGS: dict[str, SettingForm] = {
    one.name or field.name: one
    for field in msgspec.structs.fields(Settings)
    for one in getattr(field.type, "__metadata__", ())
}
NAMES = tuple(SETTINGS)
SECRETS = tuple(name for name, one in SETTINGS.items() if one.secret)
# New name → name of the setting; the listener receives inbound mail, not only bounces
NEW_NAMES = {"mail_listen": "bounce_listen"}


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
            read = SETTINGS[name].read(value)
            fields |= dict(zip(("host", "port"), read, strict=True)) if name == "listen" else {name: read}
        except ValueError as error:
            # Do not repeat the value of a secret: this message may be logged.
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
    if settings.oidc_issuer and find_spec("joserfc") is None:
        raise BadSetting(f"oidc_issuer {settings.oidc_issuer}: needs pip install 'heliograph[oidc]'")
    if not settings.password_sign_in and not settings.oidc_issuer:
        raise BadSetting("password_sign_in=off needs another way to sign in: set oidc_issuer")
    if "processes" in given or settings.database.startswith("sqlite:"):
        return settings
    return msgspec.structs.replace(settings, processes=min(len(os.sched_getaffinity(0)), PROCESSES_MAX))


def write_settings(settings: Settings) -> dict[str, str]:
    """Return each setting in its written form, including secrets; empty if not set."""
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
    """Read HELIOGRAPH_NAME, or HELIOGRAPH_NAME_FILE with the path of a file that contains the value."""
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
    """Return the setting's name, and whether `given` names a file with the value."""
    known = {*NAMES, *NEW_NAMES}
    kept = given not in known and given.removesuffix("_file") in known
    name = given.removesuffix("_file") if kept else given
    return NEW_NAMES.get(name, name), kept


def _from_credentials(folder: str | None) -> Given:
    """Read credentials of systemd (LoadCredential=) that have the name of a setting; ignore other files."""
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


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
