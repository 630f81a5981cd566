"""`heliograph secret`: shows which master secret encrypts the data, rotates it online, or replaces a lost one."""

import sys

import click

from heliograph.bootstrap import check_secret, make_secrets
from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, with_settings, with_store
from heliograph.cli.printing import print_result
from heliograph.data_folder import Secrets
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.refusals import InvalidRequest
from heliograph.manage.secret import Rotation
from heliograph.manage.secret import replace as replace_secret
from heliograph.manage.secret import rotate as rotate_secret
from heliograph.settings import Settings
from heliograph.storage.store import Store

OLD_SECRET_NEEDED = (
    "The settings give the master secret. Restart every process in turn with the new secret as HELIOGRAPH_SECRET "
    "and the current one as HELIOGRAPH_SECRET_OLD, then run this command with both."
)


@click.group()
def secret() -> None:
    """Show, rotate or replace the master secret."""


@secret.command()
@with_settings(*STORE_FLAGS)
@JSON_OPTION
def show(settings: Settings, as_json: bool) -> None:
    """Show how many values are encrypted with which master secret, by the beginning of its digest.

    Example: heliograph secret show
    """

    async def count_texts(store: Store) -> dict[str, int]:
        return make_secrets(settings, store).count_by_secret(await store.secret_store.read_encrypted_texts())

    counts = with_store(settings, "Reading", count_texts, checks_secret=True)
    print_result(as_json, {"encrypted": counts}, "\n".join(f"{name}  {count}" for name, count in counts.items()))


@secret.command()
@with_settings(*STORE_FLAGS)
@click.option(
    "--prepare", is_flag=True, help="Only create the new secret, so that you can copy it to other machines first."
)
def rotate(settings: Settings, prepare: bool) -> None:
    """Re-encrypt everything with a new master secret, while the service runs.

    The new secret is created in the data folder as secret.new and becomes secret at the end; the old one is kept as
    secret.old, for backups. Machines with their own data folder need secret.new first (--prepare). If the secret is
    given in the settings, first restart the processes with HELIOGRAPH_SECRET (new) and HELIOGRAPH_SECRET_OLD.
    If interrupted, run the command again to continue.

    \b
    heliograph secret rotate --prepare
    heliograph secret rotate
    """
    if settings.secret is not None and settings.secret_old is None:
        raise click.ClickException(OLD_SECRET_NEEDED)

    async def run_rotation(store: Store) -> int | None:
        old = make_secrets(settings, store)
        await check_secret(store, old)
        new = old.make_next()
        if prepare:
            return None
        count = await rotate_secret(store, COMMAND_LINE, make_rotation(old, new), _print_progress)
        if remaining := new.count_outdated(await store.secret_store.read_encrypted_texts()):
            raise InvalidRequest(
                f"{remaining} values were encrypted with the old secret meanwhile: run this command again."
            )
        new.finish_rotation()
        return count

    count = with_store(settings, "Re-encrypting", run_rotation)
    if count is None:
        click.echo(f"Copy {make_secrets(settings).next_file} to the data folder of every machine, then run rotate.")
    else:
        where = "HELIOGRAPH_SECRET_OLD" if settings.secret else make_secrets(settings).old_file
        click.echo(f"Re-encrypted: {count}. Keep {where} only for older backups.")


def make_rotation(old: Secrets, new: Secrets) -> Rotation:
    def reencrypt(text: str, context: str) -> str | None:
        """Return `text` re-encrypted; None if already encrypted with the new secret, or if it cannot be decrypted."""
        old_key = new.cipher.key_index(text, context)
        return new.cipher.encrypt(new.cipher.decrypt(text, context), context) if old_key else None

    return Rotation(digest=new.digest, kept_keys=old.encrypt_kept_keys(new.cipher), reencrypt=reencrypt)


def _print_progress(processed: int, total: int) -> None:
    if sys.stderr.isatty() or total > processed:
        click.echo(f"re-encrypted: {processed} of {total}", err=True)


@secret.command()
@with_settings(*STORE_FLAGS)
def replace(settings: Settings) -> None:
    """Make the database use the local master secret, which is created if there is none.

    Values encrypted with the old secret are lost: secrets of carriers and webhooks, DKIM keys, two-factor secrets.
    Each is reported where it is needed and can be set again. If you still have the old secret, restore it instead.

    \b
    heliograph secret replace
    """

    async def use_secret(store: Store) -> bool:
        return await replace_secret(store, COMMAND_LINE, make_secrets(settings).digest)

    if with_store(settings, "Replacing the secret", use_secret):
        click.echo("The database now uses this secret. Apply carriers again, and rotate webhook secrets and DKIM keys.")
    else:
        click.echo("The database already uses this secret: nothing changed.")
