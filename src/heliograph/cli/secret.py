"""`heliograph secret`: shows which master secret encrypts the data, rotates it online, or replaces a lost one."""

import sys

import click

from heliograph.bootstrap import check_secret, make_secrets
from heliograph.cli.options import AS_JSON, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import tell
from heliograph.data_folder import Secrets
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest
from heliograph.manage.secret import Rotation
from heliograph.manage.secret import replace as replace_secret
from heliograph.manage.secret import rotate as rotate_secret
from heliograph.settings import Settings
from heliograph.storage.store import Store

NEED_OLD = (
    "The settings give the master secret. Start every process, in turns, with the new one as HELIOGRAPH_SECRET and the "
    "one of now as HELIOGRAPH_SECRET_OLD, then run this with both."
)


@click.group()
def secret() -> None:
    """Show, rotate or replace the master secret."""


@secret.command()
@with_settings(*STORE_FLAGS)
@AS_JSON
def show(settings: Settings, as_json: bool) -> None:
    """Show how much is sealed under which master secret, by the beginning of its digest.

    Example: heliograph secret show
    """

    async def story(store: Store) -> dict[str, int]:
        return make_secrets(settings, store).count(await store.secret.texts())

    counted = with_store(settings, "Reading", story, seals=True)
    tell(as_json, {"sealed": counted}, "\n".join(f"{name}  {many}" for name, many in counted.items()))


@secret.command()
@with_settings(*STORE_FLAGS)
@click.option("--prepare", is_flag=True, help="Only make the new one, to copy it to other machines first.")
def rotate(settings: Settings, prepare: bool) -> None:
    """Seal everything with a new master secret, while the service runs.

    The new one is made in the data folder as secret.new, and is secret at the end; the old one stays as secret.old and
    opens what is left of it. Machines with a data folder of their own need secret.new first (--prepare). Where the
    settings give the secret, processes are first started with HELIOGRAPH_SECRET (new) and HELIOGRAPH_SECRET_OLD.
    Interrupted, it goes on when it is run again.

    \b
    heliograph secret rotate --prepare
    heliograph secret rotate
    """
    if settings.secret is not None and settings.secret_old is None:
        raise click.ClickException(NEED_OLD)

    async def story(store: Store) -> int | None:
        before = make_secrets(settings, store)
        await check_secret(store, before)
        after = before.make_next()
        if prepare:
            return None
        done = await rotate_secret(store, COMMAND_LINE, turn_of(before, after), _tell)
        if left := after.under_others(await store.secret.texts()):
            raise InvalidRequest(f"{left} sealed texts are under the old secret again: run this once more.")
        after.finish()
        return done

    done = with_store(settings, "Sealing anew", story)
    if done is None:
        click.echo(f"Copy {make_secrets(settings).next_file} into the data folder of every machine, then rotate.")
    else:
        where = "HELIOGRAPH_SECRET_OLD" if settings.secret else make_secrets(settings).old_file
        click.echo(f"Sealed anew: {done}. {where} is needed for backups of before alone.")


def turn_of(before: Secrets, after: Secrets) -> Rotation:
    def fresh(text: str, context: str) -> str | None:
        """Return `text` re-encrypted; None (left unchanged) if already under the new secret or undecryptable."""
        place = after.sealer.key_of(text, context)
        return after.sealer.seal(after.sealer.open(text, context), context) if place else None

    return Rotation(digest=after.digest, kept=before.kept(after.sealer), fresh=fresh)


def _tell(looked: int, total: int) -> None:
    if sys.stderr.isatty() or total > looked:
        click.echo(f"sealed anew: {looked} of {total}", err=True)


@secret.command()
@with_settings(*STORE_FLAGS)
def replace(settings: Settings) -> None:
    """Make the database use the master secret that is here; without one, make it.

    What the old one sealed can no longer be opened: secrets of carriers and webhooks, DKIM keys, codes at sign-in.
    Each says so where it is needed, and can be set again. Put the old secret back instead if you still have it.

    \b
    heliograph secret replace
    """

    async def story(store: Store) -> bool:
        return await replace_secret(store, COMMAND_LINE, make_secrets(settings).digest)

    if with_store(settings, "Replacing the secret", story):
        click.echo("The database uses this secret now. Apply carriers again, rotate webhooks and DKIM keys.")
    else:
        click.echo("The database uses this secret already: nothing changed.")
