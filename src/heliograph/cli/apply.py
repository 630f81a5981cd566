"""`heliograph apply`: writes the contents of a setup file to the store."""

import asyncio
import os
from typing import Any, BinaryIO

import click
import msgspec
from msgspec.structs import replace

from heliograph.app import (
    CARRIER_FACTORIES,
    make_carrier,
    make_carrier_dependencies,
    make_domains,
    make_key_pair,
    make_url_check,
)
from heliograph.bootstrap import make_secrets
from heliograph.carriers.contract import Carriers
from heliograph.cli.options import STORE_FLAGS, with_settings, with_store
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.setup.plan import FileProblem, Plan
from heliograph.domain.setup.records import CarrierRecord
from heliograph.domain.setup.setup_file import (
    SetupError,
    SetupFile,
    parse_setup_file,
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
@click.option("--plan", "only_plan", is_flag=True, help="Print what would change, without changing anything.")
def apply(settings: Settings, file: BinaryIO, as_json: bool, only_plan: bool) -> None:
    """Apply a setup FILE (TOML; - reads from standard input).

    Only settings in the file are changed, and applying the file again changes nothing. A running service applies the
    changes within a second. Tokens of new keys and secrets of new webhooks are shown only once; values given by
    { env = … } are not shown. If the file has an error, nothing is changed.

    \b
    heliograph apply setup.toml
    heliograph apply setup.toml --plan
    heliograph apply setup.toml --json | jq -r '.keys[0].token'
    """
    source = _read_text(file)

    async def apply_or_plan(store: Store) -> tuple[Plan, list[str]]:
        known_carriers = {carrier.id: (carrier.channel, carrier.kind) for carrier in store.setup.current.carriers}
        setup_file = parse_setup_file(
            source, os.environ, name=file.name, supported=CARRIER_FACTORIES, existing=known_carriers
        )
        try:
            planned_changes = await plan_file(store, settings, setup_file)
            check_carriers(store, settings, setup_file, planned_changes)
            result = planned_changes if only_plan else await apply_file(store, settings, setup_file)
        except SetupError as error:
            if as_json and error.problems:
                click.echo(_to_json(keys=[], changed=[], webhooks=[], problems=error.problems))
            raise
        return result, await _webhook_notes(settings, setup_file)

    plan, notes = with_store(settings, f"Applying {file.name}", apply_or_plan, checks_secret=True)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    # A plan creates no keys and webhooks, so the secrets generated for it are not shown.
    keys, webhooks = ([], []) if only_plan else (plan.keys, plan.webhooks)
    environment_values = values_from_environment(source, os.environ)
    keys = [replace(key, token=None) if key.token in environment_values else key for key in keys]
    webhooks = [replace(hook, secret=None) if hook.secret in environment_values else hook for hook in webhooks]
    if as_json:
        click.echo(_to_json(keys=keys, changed=plan.changed, webhooks=webhooks, problems=plan.problems))
        return
    for problem in plan.problems:
        click.echo(f"{problem.level}: {problem.template_id}: {format_problem(problem)}", err=True)
    for change in plan.changed or ["nothing would change" if only_plan else "nothing changed"]:
        click.echo(change)
    for key in keys:
        if key.token is not None:
            click.echo(f"token of key {key.name} of {key.team}, shown only once: {key.token}")
    for hook in webhooks:
        if hook.secret is not None:
            click.echo(f"secret of webhook {hook.url} of {hook.team}, shown only once: {hook.secret}")


def _to_json(**fields: Any) -> bytes:
    return msgspec.json.encode(fields)


def format_problem(problem: FileProblem) -> str:
    path = f"locales.{problem.locale}.{problem.part}" if problem.locale else problem.part
    return f"{path}{f', line {problem.line}' if problem.line else ''}: {problem.text} ({problem.code})"


def _read_text(file: BinaryIO) -> str:
    try:
        return file.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"{file.name}: {error}") from None


async def apply_file(store: Store, settings: Settings, file: SetupFile) -> Plan:
    return await setup.apply(store, COMMAND_LINE, file, **_secret_functions(store, settings), make_pair=make_key_pair)


async def plan_file(store: Store, settings: Settings, file: SetupFile) -> Plan:
    return await setup.preview(store, file, **_secret_functions(store, settings))


def check_carriers(store: Store, settings: Settings, file: SetupFile, planned: Plan) -> None:
    """Raise SetupError if a carrier cannot be built from its new options, as the dashboard checks before it saves.

    A carrier whose options do not change is not checked, so that a file can disable a broken one.
    """
    secrets = make_secrets(settings, store)
    domains = make_domains(settings, secrets, store, store.clock)
    dependencies = make_carrier_dependencies(settings, secrets, store, store.clock, domains)
    carriers = Carriers(lambda record: make_carrier(record, dependencies))
    planned_records = {
        row.id: msgspec.json.decode(row.body, type=CarrierRecord)
        for row in planned.rows
        if row.kind == "carrier" and row.body
    }
    current = {carrier.id: (carrier.kind, carrier.options) for carrier in store.setup.current.carriers}
    for i, fields in enumerate(file.carriers):
        record = planned_records.get(fields["id"])
        if record is None or (record.kind, record.options) == current.get(record.id):
            continue
        if error := carriers.settings_error(record):
            raise SetupError(f"{file.name}: carriers[{i}]: {error}")


def _secret_functions(store: Store, settings: Settings) -> dict[str, Any]:
    return {
        "vault": make_secrets(settings, store).cipher,
        "make_secret": lambda: make_secret(store.clock.random_bytes(ENTROPY_MIN)),
    }


async def _webhook_notes(settings: Settings, file: SetupFile) -> list[str]:
    """Return a note for each webhook URL to which events are not delivered at the moment, with the reason."""
    find_refusal = make_url_check(settings)
    urls = {
        f"teams[{i}].webhooks[{j}].url": split_login(hook["url"])[0]
        for i, team in enumerate(file.teams)
        for j, hook in enumerate(team.get("webhooks", []))
    }
    reasons = await asyncio.gather(*map(find_refusal, urls.values()))
    return [f"{path}: {reason}" for path, reason in zip(urls, reasons, strict=True) if reason]
