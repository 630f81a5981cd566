"""`heliograph deadletter`: lists, retries and drops messages in the dead-letter queue."""

import click
import msgspec

from heliograph.cli.options import AS_JSON, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import show
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.manage import dead_letters
from heliograph.settings import Settings
from heliograph.storage.dead_letters import PAGE, LetterKey, Retried
from heliograph.storage.store import Store

NO_LETTER = "That is no dead letter any more, or its content is no longer kept."


class LetterLine(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    message: str
    team: str
    address: str
    at: str


def _key(given: str) -> LetterKey:
    key = LetterKey.parse(given)
    if key is None:
        raise click.BadParameter(f"{given!r} is no key such as 12-0 of heliograph deadletter list.")
    return key


KEY = click.argument("letter", metavar="[KEY]", type=_key, required=False)
ALL = click.option("--all", "everything", is_flag=True, help=f"All of them, {dead_letters.ALL_MOST} at a time.")


@click.group()
def deadletter() -> None:
    """Messages that were put aside because three workers died with them: list, retry, drop."""


@deadletter.command("list")
@with_settings(*STORE_FLAGS)
@AS_JSON
def list_(settings: Settings, as_json: bool) -> None:
    """List the newest dead letters with their keys. Example: heliograph deadletter list"""

    async def story(store: Store) -> list[LetterLine]:
        teams = store.setup.current.teams_by_ref
        return [
            LetterLine(
                key=str(one.key),
                message=one.id,
                team=teams[one.team].record.id if one.team in teams else str(one.team),
                address=one.address,
                at=timestamp(one.at),
            )
            for one in (await store.dead_letters.page())[:PAGE]
        ]

    lines = with_store(settings, "Reading", story)
    show(
        as_json,
        lines,
        lambda line: f"{line.key:<12} {line.at}  {line.team}  {line.message}  {line.address}",
        none="There are no dead letters.",
    )


@deadletter.command()
@with_settings(*STORE_FLAGS)
@KEY
@ALL
def retry(settings: Settings, letter: LetterKey | None, everything: bool) -> None:
    """Put the dead letter KEY into the queue again, holding its price again.

    \b
    heliograph deadletter retry 12-0
    heliograph deadletter retry --all
    """
    _check(letter, everything)

    async def story(store: Store) -> Retried:
        if letter:
            return await dead_letters.retry(store, COMMAND_LINE, letter)
        return await dead_letters.retry_all(store, COMMAND_LINE)

    done = with_store(settings, "Retrying", story)
    if done.unpaid:
        click.echo(f"{len(done.unpaid)} not retried: {done.unpaid[0]}", err=True)
    if letter and done.gone:
        raise click.ClickException(NO_LETTER)
    click.echo(f"{done.done} in the queue again")


@deadletter.command()
@with_settings(*STORE_FLAGS)
@KEY
@ALL
def drop(settings: Settings, letter: LetterKey | None, everything: bool) -> None:
    """Give the dead letter KEY up: it stays failed.

    \b
    heliograph deadletter drop 12-0
    heliograph deadletter drop --all
    """
    _check(letter, everything)

    async def story(store: Store) -> int:
        if letter:
            return await dead_letters.drop(store, COMMAND_LINE, letter)
        return await dead_letters.drop_all(store, COMMAND_LINE)

    done = with_store(settings, "Dropping", story)
    if letter and not done:
        raise click.ClickException(NO_LETTER)
    click.echo(f"{done} dropped")


def _check(letter: LetterKey | None, everything: bool) -> None:
    if everything is (letter is not None):
        raise click.UsageError("Give a key of heliograph deadletter list, or --all.")
