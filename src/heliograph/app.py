"""Builds everything by hand: settings → store → carriers → api | worker. Only this page knows which exist."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from heliograph.channels.carrier import Carrier
from heliograph.channels.email import dkim, dns_check
from heliograph.channels.email.mx import Mx, MxOptions
from heliograph.channels.email.outgoing import Outgoing
from heliograph.channels.email.relay import Relay, RelayOptions
from heliograph.channels.email.simulator import EmailSimulator
from heliograph.channels.email.smtp import Manner
from heliograph.channels.sms.simulator import SmsSimulator
from heliograph.channels.whatsapp.simulator import WhatsappSimulator
from heliograph.clock import Clock
from heliograph.domains import Domains
from heliograph.keeping import derive, master_secret
from heliograph.rules import team
from heliograph.rules.address import normal_domain
from heliograph.rules.secrets import opened
from heliograph.rules.setup import Setup
from heliograph.sealing import Sealer
from heliograph.settings import Settings
from heliograph.storage.blobs import Blobs
from heliograph.storage.database import Database
from heliograph.storage.migrate import migrate_postgres, migrate_sqlite
from heliograph.storage.postgres import PostgresDatabase
from heliograph.storage.sqlite import SqliteDatabase
from heliograph.storage.store import Store

SQLITE = "sqlite:///"
ENVELOPE = "envelope"  # purpose of the key that signs envelope senders


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What carriers are made with, beside their own options."""

    step_ms: int  # of simulators that say nothing else
    helo: str | None  # the name that we greet mail servers with; None: our address
    outgoing: Outgoing
    sealer: Sealer


def _simulator(kind: Callable[[int], Carrier]) -> Callable[[team.Carrier, Tools], Carrier]:
    return lambda record, tools: kind(record.options.get("step_ms", tools.step_ms))


# (channel, kind) → how to make that carrier from its record, in which secrets are open.
CARRIERS: dict[tuple[str, str], Callable[[team.Carrier, Tools], Carrier]] = {
    ("email", "mx"): lambda record, tools: Mx(
        msgspec.convert({"helo": tools.helo} | record.options, MxOptions), tools.outgoing.prepare
    ),
    ("email", "smtp"): lambda record, tools: Relay(
        msgspec.convert(record.options, RelayOptions), tools.outgoing.prepare, manner=Manner(helo=tools.helo)
    ),
    ("email", "simulator"): _simulator(EmailSimulator),
    ("sms", "simulator"): _simulator(SmsSimulator),
    ("whatsapp", "simulator"): _simulator(WhatsappSimulator),
}


def sqlite_path(settings: Settings) -> Path | None:
    """The database file, or None when the database is PostgreSQL."""
    if settings.database.startswith(SQLITE):
        return Path(settings.database.removeprefix(SQLITE))
    return None


async def migrate(settings: Settings) -> list[int]:
    """Bring the database to this code's schema; answers the numbers of the files applied."""
    path = sqlite_path(settings)
    return await migrate_postgres(settings.database) if path is None else migrate_sqlite(path)


def make_database(settings: Settings) -> Database:
    path = sqlite_path(settings)
    return PostgresDatabase(settings.database) if path is None else SqliteDatabase(path)


@asynccontextmanager
async def open_store(settings: Settings, clock: Clock | None = None, owner: str = "") -> AsyncIterator[Store]:
    """A migrated store with a fresh setup; a process that claims work or keys needs an owner's name."""
    await migrate(settings)
    store = Store(make_database(settings), Blobs(settings.data / "blobs"), clock or Clock(), owner)
    try:
        await store.refresh_setup()
        yield store
    finally:
        await store.close()


def make_carrier(record: team.Carrier, tools: Tools) -> Carrier:
    options = opened(record.options, lambda sealed, field: tools.sealer.open(sealed, f"carrier/{record.id}/{field}"))
    return CARRIERS[record.channel, record.kind](msgspec.structs.replace(record, options=options), tools)


def make_tools(settings: Settings, store: Store, clock: Clock, domains: Domains) -> Tools:
    secret = master_secret(settings.data, settings.secret)
    sealer = Sealer(derive(secret, "sealing"))
    return Tools(
        step_ms=settings.simulator_step_ms,
        helo=normal_domain(store.setup.platform.mail_host or urlsplit(settings.base_url).hostname or ""),
        outgoing=Outgoing(
            ensure_keys=domains.ensure_keys,
            keys_of=lambda domain: signing_keys(store.setup, sealer, domain),
            open_blob=store.blobs.open,
            envelope_key=derive(secret, ENVELOPE),
            entropy=clock.entropy,
            now=clock.now,
        ),
        sealer=sealer,
    )


def make_domains(settings: Settings, store: Store, clock: Clock, resolver: tuple[str, int] | None = None) -> Domains:
    secret = master_secret(settings.data, settings.secret)

    def make_key(algorithm: Any) -> tuple[bytes, str]:
        private = dkim.make_key(algorithm)
        return private, dkim.public_record(private)

    return Domains(
        store,
        clock,
        seal=Sealer(derive(secret, "sealing")).seal,
        make_key=make_key,
        ask=lambda records: dns_check.check(records, resolver),
        ownership_key=derive(secret, "ownership"),
        mail_host=urlsplit(settings.base_url).hostname or "localhost",
    )


def signing_keys(setup: Setup, sealer: Sealer, name: str) -> tuple[dkim.Key, ...]:
    """The keys that sign for a domain now; none when no team has it, or it has none yet."""
    for owner in setup.teams.values():
        if domain := owner.domains.get(name):
            return tuple(
                dkim.Key(
                    selector=key.selector, algorithm=key.algorithm, private=sealer.open(key.sealed, f"dkim/{key.id}")
                )
                for key in owner.dkim_keys
                if key.domain == domain.id and key.state == "active"
            )
    return ()
