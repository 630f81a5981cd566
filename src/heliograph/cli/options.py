"""Helpers shared by the commands: settings from flags, environment or file, store access, progress, error messages."""

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
from heliograph.data_folder import seen_numbers
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.setup_file import SetupError
from heliograph.domain.setup.snapshot import Setup
from heliograph.runtime.tracing import NoTraces
from heliograph.settings import CONFIG, SETTINGS, BadSetting, Settings, read_settings
from heliograph.storage.engine.migrate import ForeignSchema
from heliograph.storage.engine.postgres import host_urls
from heliograph.storage.store import Store, StoreUnavailable

T = TypeVar("T")
Command = Callable[..., None]

SERVE_FLAGS = {name: one.flag for name, one in SETTINGS.items() if one.flag}
FLAGS = ("listen", "database", "data", "public_url")
STORE_FLAGS = ("database", "data")
SERVICE_FILE = Path("/etc/heliograph/heliograph.toml")  # where docs/deploy.md puts the settings of a service
OF_TEAM = click.option("--team", metavar="TEAM", help="Only this team's.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

MISTAKES = (BadSetting, SetupError, ForeignSchema, WrongSecret, NoTraces, Refusal)
DATABASE_ERRORS = (StoreUnavailable, apsw.Error, asyncpg.PostgresError, asyncpg.InterfaceError)


class ShowFirst(click.Group):
    """A click group whose default command is `show`."""

    first = "show"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = {*self.commands, *ctx.help_option_names}.issuperset(args[:1]) and args
        return super().parse_args(ctx, args if named else [self.first, *args])


def with_settings(*flags: str, **defaults: str) -> Callable[[Command], Command]:
    """Return a decorator that adds `flags` and --config to a command and passes it the resulting Settings.

    Flags override the environment, which overrides the file. `defaults`: help text of defaults that differ.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(*, config: Path | None, **given: Any) -> None:
            values = {name: given.pop(name) for name in flags}
            try:
                command(_checked(read_settings(values, file=config)), **given)
            except MISTAKES as error:
                raise click.ClickException(str(error)) from error

        run = click.option(
            "--config",
            envvar=CONFIG,
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help=f'Settings as TOML, for example: listen = "0.0.0.0:80". [env: {CONFIG}]',
        )(run)
        for name in reversed(flags):
            flag = SERVE_FLAGS[name]
            about = f"{flag.about} Default: {defaults.get(name, flag.usual)}. [env: HELIOGRAPH_{name.upper()}]"
            run = click.option(f"--{name.replace('_', '-')}", metavar=flag.metavar, help=about)(run)
        return run

    return decorate


def _checked(settings: Settings) -> Settings:
    try:
        for url in host_urls(settings.database):
            urlsplit(url).port  # noqa: B018  reading it is the check
    except ValueError as error:
        raise BadSetting(f"database {shown(settings.database)}: {error}") from None
    return settings


def shown(database: str) -> str:
    """Return the database URL without password, query and fragment."""
    if database.startswith("sqlite:"):
        return database
    scheme, netloc, path, _, _ = urlsplit(database)
    user, at, host = netloc.rpartition("@")
    return urlunsplit((scheme, user.partition(":")[0] + at + host, path, "", ""))


def with_store(
    settings: Settings, doing: str, story: Callable[[Store], Awaitable[T]], *, seals: bool = False, apart: bool = False
) -> T:
    """Open and migrate the store, run `story` on it and return its result; `doing` is the progress text.

    `seals`: check the master secret first. `apart`: skip the check for a service with another database.
    """

    async def run() -> T:
        if not apart:
            await refuse_second(settings)
        async with open_store(settings) as store:
            if seals:
                await check_secret(store, make_secrets(settings, store))
            return await story(store)

    with progress(doing), clear_mistakes(settings):
        return asyncio.run(run())


async def refuse_second(settings: Settings) -> None:
    """Raise if the command would create a database although a service here uses another one."""
    is_told = "database" in settings.sources or not SERVICE_FILE.exists()
    if (is_told and not seen_numbers(settings.data)) or not await _is_new(settings):
        return
    beside = f"the service of {settings.data} has another" if is_told else f"{SERVICE_FILE} configures a service here"
    raise click.ClickException(
        f"there is no database {shown(settings.database)} yet, and {beside}. Give this command the service's settings "
        f"(--config {SERVICE_FILE}, or --database). If a new one is meant: heliograph migrate --database URL."
    )


async def _is_new(settings: Settings) -> bool:
    path = sqlite_path(settings)
    return (path is not None and not path.exists()) or (await schema_version(settings)).found == 0


def read_setup(settings: Settings) -> Setup:
    async def story(store: Store) -> Setup:
        return store.setup.current

    return with_store(settings, "Reading", story)


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Show `doing` on a terminal while the block runs."""
    is_seen = sys.stderr.isatty()
    click.echo(f"{doing} …" if is_seen else "", nl=False, err=True)
    try:
        yield
    finally:
        click.echo("\r\x1b[K" if is_seen else "", nl=False, err=True)


@contextmanager
def clear_mistakes(settings: Settings) -> Iterator[None]:
    """Turn database and file errors into a one-line ClickException with the reason and a fix."""
    try:
        yield
    except (*DATABASE_ERRORS, OSError) as error:
        reason, fix = database_fault(settings, error)
        if not (isinstance(error, OSError) and error.filename):
            reason = f"database {shown(settings.database)}: {reason}"
        raise click.ClickException(f"{reason}. {fix}.") from error
