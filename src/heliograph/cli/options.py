"""What the commands share: settings from flags, environment or file; access to the store; progress; error messages."""

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import apsw
import asyncpg
import click

from heliograph.bootstrap import (
    WrongSecret,
    check_secret,
    database_fault,
    make_secrets,
    open_store,
    schema_version,
    sqlite_path,
)
from heliograph.data_folder import read_database_counters
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.cells import is_cell_name
from heliograph.domain.setup.setup_file import SetupError
from heliograph.domain.setup.snapshot import Setup
from heliograph.runtime.tracing import TracingError
from heliograph.settings import CONFIG_VARIABLE, SETTINGS, BadSetting, Settings, read_settings
from heliograph.storage.engine.migrate import ForeignSchema
from heliograph.storage.engine.postgres import host_urls
from heliograph.storage.store import Store, StoreUnavailable

T = TypeVar("T")
Command = Callable[..., None]

SERVE_FLAGS = {name: setting.flag for name, setting in SETTINGS.items() if setting.flag}
BASIC_FLAGS = ("listen", "database", "data", "public_url")
STORE_FLAGS = ("database", "data")
SERVICE_FILE = Path("/etc/heliograph/heliograph.toml")  # settings of a service installed as in docs/deploy.md
TEAM_OPTION = click.option("--team", metavar="TEAM", help="Only this team.")
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

USER_ERRORS = (BadSetting, SetupError, ForeignSchema, WrongSecret, TracingError, Refusal)
DATABASE_ERRORS = (StoreUnavailable, apsw.Error, asyncpg.PostgresError, asyncpg.InterfaceError)


class DefaultGroup(click.Group):
    """A click group with a command that runs if none is named."""

    def __init__(self, *args: Any, default_command: str = "show", **options: Any) -> None:
        super().__init__(*args, **options)
        self._default_command = default_command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        has_command = {*self.commands, *ctx.help_option_names}.issuperset(args[:1]) and args
        # Shell completion also parses the unfinished name of a command
        is_complete = has_command or ctx.resilient_parsing
        return super().parse_args(ctx, args if is_complete else [self._default_command, *args])


def with_settings(*flags: str, several_cells: bool = False, **defaults: str) -> Callable[[Command], Command]:
    """Return a decorator that adds `flags` and --config to a command, and passes the resulting Settings to the command.

    Flags take precedence over the environment, and the environment over the file. `defaults`: help texts of defaults
    that differ for this command. `several_cells`: the command also works with settings for several cells.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run_command(*, config: Path | None, **arguments: Any) -> None:
            values = {name: arguments.pop(name) for name in flags}
            try:
                settings = _check_database_url(read_settings(values, file=config))
                if not several_cells:
                    _check_one_cell(settings)
                command(settings, **arguments)
            except USER_ERRORS as error:
                raise click.ClickException(str(error)) from error

        run_command = click.option(
            "--config",
            envvar=CONFIG_VARIABLE,
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help=f'TOML file with settings, for example: listen = "0.0.0.0:80". [env: {CONFIG_VARIABLE}]',
        )(run_command)
        for name in reversed(flags):
            flag = SERVE_FLAGS[name]
            help_text = (
                f"{flag.help_text} Default: {defaults.get(name, flag.default_text)}. [env: HELIOGRAPH_{name.upper()}]"
            )
            run_command = click.option(f"--{name.replace('_', '-')}", metavar=flag.metavar, help=help_text)(run_command)
        return run_command

    return decorate


def _check_database_url(settings: Settings) -> Settings:
    try:
        for url in host_urls(settings.database):
            urlsplit(url).port  # noqa: B018  raises ValueError if invalid
    except ValueError as error:
        raise BadSetting(f"database {without_password(settings.database)}: {error}") from None
    return settings


def _check_one_cell(settings: Settings) -> None:
    if settings.cells and not settings.cell:
        raise BadSetting(
            f"this command works on one cell, and the settings have several. Set HELIOGRAPH_CELL={settings.cells[0]}, "
            f"or another of {', '.join(settings.cells)}"
        )


def parse_cell_name(text: str) -> str:
    if not is_cell_name(text):
        raise click.BadParameter(f"{text!r} is not a name such as cell_01: small letters, digits and _")
    return text


def without_password(database: str) -> str:
    """Return the database URL without password, query and fragment."""
    if database.startswith("sqlite:"):
        return database
    scheme, netloc, path, _, _ = urlsplit(database)
    user, at, host = netloc.rpartition("@")
    return urlunsplit((scheme, user.partition(":")[0] + at + host, path, "", ""))


def with_store(
    settings: Settings,
    progress_text: str,
    action: Callable[[Store], Awaitable[T]],
    *,
    checks_secret: bool = False,
    allows_second_database: bool = False,
) -> T:
    """Open and migrate the store, and return the result of `action` on it.

    `checks_secret`: first check the master secret. `allows_second_database`: do not check whether a service uses
    another database.
    """

    async def run() -> T:
        if not allows_second_database:
            await refuse_second_database(settings)
        async with open_store(settings) as store:
            if checks_secret:
                await check_secret(store, make_secrets(settings, store))
            return await action(store)

    with progress(progress_text), readable_errors(settings):
        return asyncio.run(run())


async def refuse_second_database(settings: Settings) -> None:
    """Raise an error if the command would create a database while a service of this machine uses another one."""
    is_configured = "database" in settings.sources or not SERVICE_FILE.exists()
    if (is_configured and not read_database_counters(settings.data)) or not await _is_new(settings):
        return
    conflict = (
        f"the service of {settings.data} uses another database"
        if is_configured
        else f"{SERVICE_FILE} configures a service here"
    )
    raise click.ClickException(
        f"there is no database {without_password(settings.database)} yet, and {conflict}. Use the service's settings "
        f"(--config {SERVICE_FILE}, or --database). To create a new database: heliograph migrate --database URL."
    )


async def _is_new(settings: Settings) -> bool:
    path = sqlite_path(settings)
    return (path is not None and not path.exists()) or (await schema_version(settings)).current == 0


def read_setup(settings: Settings) -> Setup:
    async def get_setup(store: Store) -> Setup:
        return store.setup.current

    return with_store(settings, "Reading", get_setup)


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show `text` while the block runs, if stderr is a terminal."""
    is_terminal = sys.stderr.isatty()
    click.echo(f"{text} …" if is_terminal else "", nl=False, err=True)
    try:
        yield
    finally:
        click.echo("\r\x1b[K" if is_terminal else "", nl=False, err=True)


@contextmanager
def readable_errors(settings: Settings) -> Iterator[None]:
    """Turn database and file errors into a ClickException with one line: the reason and a fix."""
    try:
        yield
    except (*DATABASE_ERRORS, OSError) as error:
        reason, fix = database_fault(settings, error)
        if not (isinstance(error, OSError) and error.filename):
            reason = f"database {without_password(settings.database)}: {reason}"
        raise click.ClickException(f"{reason}. {fix}.") from error
