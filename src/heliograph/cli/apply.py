"""`heliograph apply`: writes the contents of a setup file to the store."""

import asyncio
import os
from typing import Any, BinaryIO

import click
import msgspec
from msgspec.structs import replace

from heliograph.app import CARRIERS, make_pair, webhook_refusal
from heliograph.bootstrap import make_secrets
from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.plan import FileProblem, Plan
from heliograph.domain.setup.setup_file import (
    SetupError,
    SetupFile,
    read_setup_file,
    values_from_environment,
)
from heliograph.manage import apply as setup
from heliograph.settings import Settings
from heliograph.storage.store import Store
from heliograph.webhooks.policy.signature import ENTROPY_MIN, make_secret
from heliograph.webhooks.policy.webhook_url import split_login


@click.command()
@with_settings(*STORE_FLAGS)
@click.argument("file", type=click.File("rb"))
@click.option("--json", "as_json", is_flag=True, help="Print keys, webhooks, changes and problems as JSON.")
@click.option("--plan", "only_plan", is_flag=True, help="Print what would change, and change nothing.")
def apply(settings: Settings, file: BinaryIO, as_json: bool, only_plan: bool) -> None:
    """Apply a setup FILE (TOML; - reads it from the standard input).

    Only what is written is applied, and applying it again changes nothing. A running service follows within a
    second. Tokens of new keys and secrets of new webhooks are shown only once;
    those given by { env = … } are not shown. A mistake in the file changes nothing.

    \b
    heliograph apply setup.toml
    heliograph apply setup.toml --plan
    heliograph apply setup.toml --json | jq -r '.keys[0].token'
    """
    text = _text(file)

    async def story(store: Store) -> tuple[Plan, list[str]]:
        known = {carrier.id: (carrier.channel, carrier.kind) for carrier in store.setup.current.carriers}
        read = read_setup_file(text, os.environ, name=file.name, runnable=CARRIERS, known=known)
        try:
            done = await (plan_file if only_plan else apply_file)(store, settings, read)
        except SetupError as error:
            if as_json and error.problems:
                click.echo(_json(keys=[], changed=[], webhooks=[], problems=error.problems))
            raise
        return done, await _notes(settings, read)

    done, notes = with_store(settings, f"Applying {file.name}", story, seals=True)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    keys, webhooks = ([], []) if only_plan else (done.keys, done.webhooks)  # secrets of a plan are discarded
    known = values_from_environment(text, os.environ)
    keys = [replace(key, token=None) if key.token in known else key for key in keys]
    webhooks = [replace(hook, secret=None) if hook.secret in known else hook for hook in webhooks]
    if as_json:
        click.echo(_json(keys=keys, changed=done.changed, webhooks=webhooks, problems=done.problems))
        return
    for problem in done.problems:
        click.echo(f"{problem.level}: {problem.template_id}: {said(problem)}", err=True)
    for line in done.changed or ["nothing would change" if only_plan else "nothing changed"]:
        click.echo(line)
    for key in keys:
        if key.token is not None:
            click.echo(f"token of key {key.name} of {key.team}, shown only once: {key.token}")
    for hook in webhooks:
        if hook.secret is not None:
            click.echo(f"secret of webhook {hook.url} of {hook.team}, shown only once: {hook.secret}")


def _json(**answered: Any) -> bytes:
    return msgspec.json.encode(answered)


def said(problem: FileProblem) -> str:
    where = f"locales.{problem.locale}.{problem.part}" if problem.locale else problem.part
    return f"{where}{f', line {problem.line}' if problem.line else ''}: {problem.text} ({problem.code})"


def _text(file: BinaryIO) -> str:
    try:
        return file.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"{file.name}: {error}") from None


async def apply_file(store: Store, settings: Settings, file: SetupFile) -> Plan:
    return await setup.apply(store, COMMAND_LINE, file, **_means(store, settings), make_pair=make_pair)


async def plan_file(store: Store, settings: Settings, file: SetupFile) -> Plan:
    return await setup.preview(store, file, **_means(store, settings))


def _means(store: Store, settings: Settings) -> dict[str, Any]:
    return {
        "vault": make_secrets(settings, store).sealer,
        "make_secret": lambda: make_secret(store.clock.entropy(ENTROPY_MIN)),
    }


async def _notes(settings: Settings, file: SetupFile) -> list[str]:
    """Return a note for each webhook URL that is currently not allowed. The webhooks are saved anyway; every
    delivery attempt checks the URL again.
    """
    refused = webhook_refusal(settings)
    urls = {
        f"teams[{i}].webhooks[{j}].url": split_login(hook["url"])[0]
        for i, own in enumerate(file.teams)
        for j, hook in enumerate(own.get("webhooks", []))
    }
    reasons = await asyncio.gather(*map(refused, urls.values()))
    return [f"{place}: {why}" for place, why in zip(urls, reasons, strict=True) if why]
