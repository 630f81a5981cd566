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

from heliograph.domain.accounts.idp_groups import GroupRole, format_group_roles, parse_group_roles
from heliograph.domain.setup.cells import PLACEHOLDER, cell_public_url, cell_url, is_cell_name

VARIABLE_PREFIX = "HELIOGRAPH_"
CONFIG_VARIABLE = "HELIOGRAPH_CONFIG"  # path of the settings file, unless --config is given
CELL_VARIABLE = "HELIOGRAPH_CELL"
# Variables that are not settings: those besides the first are used by clients, possibly in the same shell
NOT_SETTINGS = (CONFIG_VARIABLE, "HELIOGRAPH_URL", "HELIOGRAPH_KEY", "HELIOGRAPH_FROM")
TOKEN_MIN = 16  # minimum characters of a token
PROCESSES_MAX = 64


class BadSetting(Exception):
    """Raised if a setting is unknown or malformed; the message names it and the expected format."""


class SettingSource(msgspec.Struct, frozen=True):
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


def _standby(value: str) -> str:
    if value.startswith(("postgresql://", "postgres://")):
        return value
    raise ValueError("expected postgresql://user@standby/name")


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
    is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not (parts.scheme == "https" or (parts.scheme == "http" and is_local)) or not parts.hostname:
        raise ValueError("expected an address such as https://id.example.com; http only on this machine")
    if parts.query or parts.fragment or parts.username or not value.isascii() or " " in value:
        raise ValueError("expected an address without a query, such as https://id.example.com")
    return value


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("expected an address such as https://mail.example.com")
    return value.rstrip("/")


def _single_line(value: str) -> str:
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


def _cell(value: str) -> str:
    if not is_cell_name(value):
        raise ValueError("expected names such as cell_01: small letters, digits and _, not _ at the end")
    return value


def _cells(value: str) -> tuple[str, ...]:
    cells = tuple(_cell(part.strip()) for part in value.split(",")) if value else ()
    if len(set(cells)) < len(cells):
        raise ValueError("expected each cell once")
    return cells


def _listener(value: str) -> tuple[str, int] | None:
    return None if value in ("", "off") else _address(value)


def _health(value: str) -> tuple[str, int] | None:
    return _listener(f"0.0.0.0{value}" if value.startswith(":") else value)


def _listeners(value: str) -> tuple[tuple[str, int], ...]:
    addresses = [] if value in ("", "off") else value.split(",")
    return tuple(_address(part.strip()) for part in addresses)


class Flag(msgspec.Struct, frozen=True):
    metavar: str
    help_text: str
    default_text: str  # default, as shown in the help


class SettingSpec(msgspec.Struct, frozen=True):
    """Format of a setting. `name`: the name of the setting, if it differs from the name of the field."""

    parse: Callable[[str], Any] = str  # parser; its ValueError says what is expected
    secret: bool = False
    flag: Flag | None = None
    name: str = ""


def _empty_as(parse: Callable[[str], Any], default: Any) -> SettingSpec:
    """Return the spec of a setting that is parsed with `parse`; an empty value becomes `default`."""
    return SettingSpec(lambda value: parse(value) if value else default)


def _choice(expected: str, *choices: str) -> SettingSpec:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"expected {expected}")
        return value

    return SettingSpec(parse)


def _whole_number(minimum: int, maximum: int, flag: Flag | None = None) -> SettingSpec:
    def parse(value: str) -> int:
        if not (value.isascii() and value.isdigit() and minimum <= int(value) <= maximum):
            raise ValueError(f"expected a whole number from {minimum} to {maximum}")
        return int(value)

    return SettingSpec(parse, flag=flag)


Text = Annotated[str, SettingSpec()]
LineText = Annotated[str, SettingSpec(_single_line)]
Switch = Annotated[bool, SettingSpec(_switch)]
SecretKey = Annotated[bytes | None, SettingSpec(_secret, secret=True)]
File = Annotated[Path | None, _empty_as(Path, None)]
Ranges = Annotated[tuple[str, ...], SettingSpec(_ranges)]
Addresses = Annotated[tuple[tuple[str, int], ...], SettingSpec(_listeners)]

_LISTEN = Flag("HOST:PORT", "Address to listen on for HTTP.", "127.0.0.1:8700")
_DATABASE = Flag("URL", "sqlite:///path/to/file.db or postgresql://user@host,host/name.", "sqlite:///heliograph.db")
_DATA = Flag("FOLDER", "Folder of attachments and the generated secret.", "heliograph-data")
_PUBLIC_URL = Flag("URL", "Public URL of this service.", "the listen address")
_HEALTH = Flag(
    "HOST:PORT", "Serve only health checks and metrics here, also in a worker; :PORT for every address.", "none"
)
_PROCESSES = Flag("N", "Number of processes.", "one for each core on PostgreSQL, 1 on SQLite")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. The annotation of each field defines its parser, environment variable and flag."""

    host: Annotated[str, SettingSpec(_address, flag=_LISTEN, name="listen")] = "127.0.0.1"
    port: int = 8700  # 0 for any free port
    database: Annotated[str, SettingSpec(_database, flag=_DATABASE)] = "sqlite:///heliograph.db"
    # Cells (PostgreSQL schemas, each a complete installation) that `serve` runs; empty: one installation, not a cell
    cells: Annotated[tuple[str, ...], SettingSpec(_cells)] = ()
    cell: Annotated[str, _empty_as(_cell, "")] = ""  # the one of `cells` that these settings apply to; empty: all
    checkpoint: Annotated[  # who checkpoints the SQLite WAL; external: Litestream
        Literal["own", "external"],
        _choice("own, or external where Litestream copies the database", "own", "external"),
    ] = "own"
    data: Annotated[Path, SettingSpec(_folder, flag=_DATA)] = Path("heliograph-data")  # files, locks and the secret
    secret: SecretKey = None  # 32 bytes; if None, generated at the first start and stored in the data folder
    secret_old: SecretKey = None  # previous secret, used for decryption during a rotation
    # s3:// URL; if empty, PostgreSQL, or the data folder with SQLite
    attachments: Annotated[str, SettingSpec(_bucket)] = ""
    s3_endpoint: Annotated[str, _empty_as(_url, "")] = ""  # if empty, Amazon S3
    s3_region: Text = "us-east-1"
    s3_access_key: Text = ""  # if empty, from the environment or the machine's role
    s3_secret_key: Annotated[str, SettingSpec(secret=True)] = ""
    # KiB above which the body of an email is stored in the object store of attachments; 0: never
    contents_in_s3: Annotated[int, _whole_number(0, 65536)] = 0
    # Without trailing slash; http://host:port if empty
    public_url: Annotated[str, SettingSpec(_url, flag=_PUBLIC_URL)] = ""
    health: Annotated[tuple[str, int] | None, SettingSpec(_health, flag=_HEALTH)] = None  # off if None
    bounce_listen: Annotated[tuple[str, int] | None, SettingSpec(_listener)] = None  # inbound SMTP; off if None
    submission_listen: Addresses = ()  # SMTP with STARTTLS; off if empty
    submission_tls_listen: Addresses = ()  # SMTP with implicit TLS
    submission_cert: File = None  # PEM with certificate chain
    submission_key: File = None
    # DNS server for checks of sending domains; if None, the authoritative servers of each zone.
    resolver: Annotated[tuple[str, int] | None, _empty_as(_address, None)] = None
    webhook_allow_private: Ranges = ()  # private IP ranges that webhooks may reach
    trusted_proxies: Ranges = ()  # IP ranges of proxies whose X-Forwarded-For is trusted
    metrics_allow: Ranges = ()  # IP ranges besides loopback that may read /metrics
    # Permits reading /metrics from any address; off if empty
    metrics_token: Annotated[str, SettingSpec(_token, secret=True)] = ""
    mcp: Switch = False  # serve the Model Context Protocol for agents at POST /mcp
    # Identity provider for sign-in; off if the issuer is empty.
    oidc_issuer: Annotated[str, _empty_as(_issuer, "")] = ""
    oidc_client_id: LineText = ""
    oidc_client_secret: Annotated[str, SettingSpec(_single_line, secret=True)] = ""  # empty for a public client
    oidc_name: LineText = ""  # text of the sign-in button; the provider's host if empty
    oidc_scopes: Annotated[str, SettingSpec(_scopes)] = "openid email profile"
    oidc_groups_claim: LineText = "groups"
    oidc_roles: Annotated[tuple[GroupRole, ...], SettingSpec(parse_group_roles)] = ()
    oidc_email_trusted: Switch = False  # trust email addresses without an email_verified claim
    password_sign_in: Switch = True
    # Number of processes of `serve`; default on PostgreSQL: one per core.
    processes: Annotated[int, _whole_number(1, PROCESSES_MAX, _PROCESSES)] = 1
    # Delay after SIGTERM in which proxies see that the process is not ready.
    stop_delay_ms: Annotated[int, _whole_number(0, 3_600_000)] = 5_000
    # postgresql:// URL of a streaming standby for lists, search, statistics and exports; none if empty
    database_read: Annotated[str, _empty_as(_standby, "")] = ""
    # PostgreSQL connections per process, besides the one for LISTEN.
    database_pool: Annotated[int, _whole_number(2, 1000)] = 8
    # Timeout of a PostgreSQL statement, or for a free connection
    database_timeout_s: Annotated[int, _whole_number(1, 600)] = 10
    database_connect_s: Annotated[int, _whole_number(1, 60)] = 3  # timeout for connecting to PostgreSQL
    # MiB of large request bodies that a process reads at once; further requests wait.
    body_memory_mb: Annotated[int, _whole_number(16, 4096)] = 96
    # HTTP connections per process; further ones receive 503
    connections_max: Annotated[int, _whole_number(16, 65536)] = 4096
    # A process whose event loop is stuck for this long exits; 0 disables the watchdog.
    watchdog_s: Annotated[int, _whole_number(0, 3600)] = 60
    log_format: Annotated[Literal["text", "json"], _choice("text or json", "text", "json")] = "text"
    # Delay between two states of a simulated message
    simulator_step_ms: Annotated[int, _whole_number(0, 3_600_000)] = 200
    sources: dict[str, SettingSource] = {}  # setting name → source, for values that are not defaults

    @property
    def base_url(self) -> str:
        return self.public_url or f"http://{self.listen}"

    @property
    def listen(self) -> str:
        return host_and_port(self.host, self.port)

    def submission(self) -> list[str]:
        """Return the SMTP submission addresses and their encryption, as text for people."""
        starttls = "STARTTLS" if self.submission_cert else "no TLS, from this machine only"
        return [
            *(f"{host_and_port(*address)} ({starttls})" for address in self.submission_listen),
            *(f"{host_and_port(*address)} (TLS)" for address in self.submission_tls_listen),
        ]


# By name. The environment variable is HELIOGRAPH_ and the name in capitals; with the suffix "_FILE" it names a file.
SETTINGS: dict[str, SettingSpec] = {
    spec.name or field.name: spec
    for field in msgspec.structs.fields(Settings)
    for spec in getattr(field.type, "__metadata__", ())
}
NAMES = tuple(SETTINGS)
SECRET_NAMES = tuple(name for name, spec in SETTINGS.items() if spec.secret)
# Alternative name of a setting → its original name; the listener receives all inbound mail, not only bounces
NAME_BY_ALIAS = {"mail_listen": "bounce_listen"}


def read_settings(
    flags: Mapping[str, str | None], environment: Mapping[str, str] | None = None, file: Path | None = None
) -> Settings:
    environment = os.environ if environment is None else environment
    texts = {
        **_from_file(file),
        **_from_credentials(environment.get("CREDENTIALS_DIRECTORY")),
        **_from_environment(environment),
        **{
            name: (flag, SettingSource("flag", f"--{name.replace('_', '-')}"))
            for name, flag in flags.items()
            if flag is not None
        },
    }
    fields: dict[str, Any] = {"sources": {name: source for name, (_, source) in texts.items()}}
    for name, (value, source) in texts.items():
        try:
            parsed_value = SETTINGS[name].parse(value)
            fields |= (
                dict(zip(("host", "port"), parsed_value, strict=True)) if name == "listen" else {name: parsed_value}
            )
        except ValueError as error:
            # Do not repeat the value of a secret: this message may be logged.
            shown_value = "" if name in SECRET_NAMES or "@" in value else f"={value!r}"
            raise BadSetting(f"{source.name}{shown_value}: {error}") from None
    settings = Settings(**fields)
    if settings.contents_in_s3 and not settings.attachments:
        raise BadSetting("contents_in_s3 needs an object store: set attachments")
    if settings.database_read and settings.database.startswith("sqlite:"):
        raise BadSetting("database_read needs PostgreSQL: it is a standby of the database")
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
    _check_cells(settings)
    if "processes" not in texts and not settings.database.startswith("sqlite:"):
        cores = len(os.sched_getaffinity(0)) // max(len(settings.cells), 1)
        settings = msgspec.structs.replace(settings, processes=min(max(cores, 1), PROCESSES_MAX))
    cell = settings.cell or (settings.cells[0] if len(settings.cells) == 1 else "")
    return settings_of_cell(settings, cell) if cell else settings


def _check_cells(settings: Settings) -> None:
    if settings.cell and settings.cell not in settings.cells:
        raise BadSetting(
            f"cell={settings.cell!r}: expected one of cells, {', '.join(settings.cells) or 'which is empty'}"
        )
    if settings.cells and settings.database.startswith("sqlite:"):
        raise BadSetting("cells need PostgreSQL: each is a schema of the database")
    if not settings.cells and PLACEHOLDER in settings.public_url:
        raise BadSetting(f"public_url {settings.public_url}: {PLACEHOLDER} needs cells")
    if len(settings.cells) > 1 and settings.public_url and PLACEHOLDER not in settings.public_url:
        raise BadSetting(
            f"public_url {settings.public_url}: with several cells, {PLACEHOLDER} must be in the host name, such as "
            f"https://{PLACEHOLDER}.mail.example.com"
        )
    if len(settings.cells) > 1 and settings.secret:
        raise BadSetting("secret: several cells cannot share one. Leave it out: each has a file in its data folder")


def settings_of_cell(settings: Settings, cell: str) -> Settings:
    """Return one cell's settings: with the schema, folder, ports and public URL of that cell.

    Each port is increased by the position of the cell in `cells`.
    """
    position = settings.cells.index(cell)

    def move(address: tuple[str, int]) -> tuple[str, int]:
        return address[0], address[1] + position if address[1] else 0

    return msgspec.structs.replace(
        settings,
        cell=cell,
        database=cell_url(settings.database, cell),
        database_read=settings.database_read and cell_url(settings.database_read, cell),
        data=settings.data / cell,
        attachments=settings.attachments and f"{settings.attachments}/{cell}",
        public_url=cell_public_url(settings.public_url, cell),
        port=move(("", settings.port))[1],
        health=settings.health and move(settings.health),
        bounce_listen=settings.bounce_listen and move(settings.bounce_listen),
        submission_listen=tuple(map(move, settings.submission_listen)),
        submission_tls_listen=tuple(map(move, settings.submission_tls_listen)),
    )


def write_settings(settings: Settings) -> dict[str, str]:
    """Return each setting in its written form, including secrets; empty if not set."""
    return {name: _to_text(getattr(settings, name)) for name in NAMES}


def _to_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bytes():
            return base64.b64encode(value).decode()
        case bool():
            return "on" if value else "off"
        case (GroupRole(), *_):
            return format_group_roles(value)
        case (str(host), int(port)):
            return host_and_port(host, port)
        case tuple():
            return ",".join(map(_to_text, value))
        case _:
            return str(value)


SettingTexts = dict[str, tuple[str, SettingSource]]


def _from_environment(environment: Mapping[str, str]) -> SettingTexts:
    """Read HELIOGRAPH_NAME, or HELIOGRAPH_NAME_FILE with the path of a file that contains the value."""
    texts: SettingTexts = {}
    for variable, value in environment.items():
        if not variable.startswith(VARIABLE_PREFIX) or variable in NOT_SETTINGS:
            continue
        name, is_file = _resolve_name(variable.removeprefix(VARIABLE_PREFIX).lower())
        if name not in NAMES:
            raise BadSetting(
                f"{variable} is not a setting. Known: {', '.join(VARIABLE_PREFIX + n.upper() for n in NAMES)}"
            )
        if name in texts:
            raise BadSetting(f"{texts[name][1].name} and {variable}: only one of them can be given")
        if is_file:
            texts[name] = (_read_text(Path(value), variable), SettingSource("file", f"{variable}={value}"))
        else:
            texts[name] = (value, SettingSource("environment", variable))
    return texts


def _resolve_name(key: str) -> tuple[str, bool]:
    """Return the setting that `key` names, and whether `key` has the suffix _file: its value is then a file's path."""
    known_names = {*NAMES, *NAME_BY_ALIAS}
    is_file = key not in known_names and key.removesuffix("_file") in known_names
    name = key.removesuffix("_file") if is_file else key
    return NAME_BY_ALIAS.get(name, name), is_file


def _from_credentials(folder: str | None) -> SettingTexts:
    """Read credentials of systemd (LoadCredential=) that have the name of a setting; ignore other files."""
    paths = [Path(folder, name) for name in NAMES] if folder else []
    return {
        path.name: (_read_text(path, "credential"), SettingSource("credential", str(path)))
        for path in paths
        if path.is_file()
    }


def _read_text(path: Path, source: str) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise BadSetting(f"{source} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadSetting(f"{source} {path}: expected text") from None


def _from_file(file: Path | None) -> SettingTexts:
    if file is None:
        return {}
    try:
        table = tomllib.loads(file.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise BadSetting(f"{file}: no such settings file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{file}: {error}") from None
    texts: SettingTexts = {}
    for key, value in table.items():
        name, is_file = _resolve_name(key)
        if name not in NAMES:
            raise BadSetting(f"{file}: {name} is not a setting. Known: {', '.join(NAMES)}")
        if name in texts:
            raise BadSetting(f"{file}: {name} and {name}_file: only one of them can be given")
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise BadSetting(f"{file}: {key}: expected a string or a number")
        text = _read_text(Path(str(value)), f"{file}: {key}") if is_file else str(value)
        texts[name] = (text, SettingSource("config", f"{file}: {key}"))
    return texts


def host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
