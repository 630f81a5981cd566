"""`heliograph deadletter`: lists, retries and drops messages in the dead-letter queue."""

import click
import msgspec

from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import print_list
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.ids import timestamp
from heliograph.manage import dead_letters
from heliograph.settings import Settings
from heliograph.storage.dead_letters import PAGE_SIZE, DeadLetterKey, RetryResult
from heliograph.storage.store import Store

NOT_FOUND = "This message is no longer in the dead-letter queue, or its content is no longer stored."


class LetterSummary(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    message: str
    team: str
    address: str
    at: str


def _parse_key(text: str) -> DeadLetterKey:
    key = DeadLetterKey.parse(text)
    if key is None:
        raise click.BadParameter(f"{text!r} is not a key such as 12-0. See: heliograph deadletter list")
    return key


KEY_ARGUMENT = click.argument("letter", metavar="[KEY]", type=_parse_key, required=False)
ALL_OPTION = click.option(
    "--all", "select_all", is_flag=True, help=f"All messages in the queue, up to {dead_letters.LETTERS_MAX} at a time."
)


@click.group()
def deadletter() -> None:
    """List, retry or drop messages in the dead-letter queue: three workers crashed while processing them."""


@deadletter.command("list")
@with_settings(*STORE_FLAGS)
@JSON_OPTION
def list_(settings: Settings, as_json: bool) -> None:
    """List the newest messages in the dead-letter queue.

    Example: heliograph deadletter list
    """

    async def read_summaries(store: Store) -> list[LetterSummary]:
        teams = store.setup.current.teams_by_ref
        return [
            LetterSummary(
                key=str(letter.key),
                message=letter.id,
                team=teams[letter.team].record.id if letter.team in teams else str(letter.team),
                address=letter.address,
                at=timestamp(letter.at),
            )
            for letter in (await store.dead_letters.list_page())[:PAGE_SIZE]
        ]

    summaries = with_store(settings, "Reading", read_summaries)
    print_list(
        as_json,
        summaries,
        lambda summary: f"{summary.key:<12} {summary.at}  {summary.team}  {summary.message}  {summary.address}",
        empty_text="The dead-letter queue is empty.",
    )


@deadletter.command()
@with_settings(*STORE_FLAGS)
@KEY_ARGUMENT
@ALL_OPTION
def retry(settings: Settings, letter: DeadLetterKey | None, select_all: bool) -> None:
    """Queue the message KEY for delivery again; its price is put on hold again.

    \b
    heliograph deadletter retry 12-0
    heliograph deadletter retry --all
    """
    _check_selection(letter, select_all)

    async def run_retry(store: Store) -> RetryResult:
        if letter:
            return await dead_letters.retry(store, COMMAND_LINE, letter)
        return await dead_letters.retry_all(store, COMMAND_LINE)

    result = with_store(settings, "Retrying", run_retry)
    if result.unpaid:
        click.echo(f"{len(result.unpaid)} not retried: {result.unpaid[0]}", err=True)
    if letter and result.missing:
        raise click.ClickException(NOT_FOUND)
    click.echo(f"{result.requeued} queued again")


@deadletter.command()
@with_settings(*STORE_FLAGS)
@KEY_ARGUMENT
@ALL_OPTION
def drop(settings: Settings, letter: DeadLetterKey | None, select_all: bool) -> None:
    """Remove the message KEY from the dead-letter queue; it stays failed.

    \b
    heliograph deadletter drop 12-0
    heliograph deadletter drop --all
    """
    _check_selection(letter, select_all)

    async def run_drop(store: Store) -> int:
        if letter:
            return await dead_letters.drop(store, COMMAND_LINE, letter)
        return await dead_letters.drop_all(store, COMMAND_LINE)

    dropped = with_store(settings, "Dropping", run_drop)
    if letter and not dropped:
        raise click.ClickException(NOT_FOUND)
    click.echo(f"{dropped} dropped")


def _check_selection(letter: DeadLetterKey | None, select_all: bool) -> None:
    """Require exactly one of KEY and --all."""
    if select_all is (letter is not None):
        raise click.UsageError("Give a key from heliograph deadletter list, or --all.")
