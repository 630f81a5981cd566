"""`heliograph carriers`: shows carriers with their health and the last hour's results, and changes them."""

import click
import msgspec

from heliograph.cli.options import AS_JSON, STORE_FLAGS, ShowFirst, with_settings, with_store
from heliograph.cli.printing import show as show_list
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.circuit import Circuit, health
from heliograph.domain.ids import timestamp
from heliograph.domain.setup.records import CarrierRecord
from heliograph.manage.carriers import CarrierChange
from heliograph.manage.carriers import change as change_carrier
from heliograph.settings import Settings
from heliograph.storage.carrier_stats import RecentUse
from heliograph.storage.store import Store


class LastHour(msgspec.Struct, frozen=True, kw_only=True):
    """Send attempts of the last hour by result; `put_off` counts deferred attempts and unreachable carriers."""

    accepted: int
    refused: int
    put_off: int


class CarrierLine(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    channel: str
    kind: str
    countries: tuple[str, ...]
    priority: int
    enabled: bool
    health: str  # untested, ok, disabled, or unreachable
    since: str | None
    next_probe: str | None
    reason: str | None
    last_hour: LastHour


@click.group(cls=ShowFirst)
def carriers() -> None:
    """Show the carriers, switch them on and off, and put them in order.

    \b
    heliograph carriers
    heliograph carriers change relay-1 --disable
    """


@carriers.command()
@with_settings(*STORE_FLAGS)
@click.argument("carrier")
@click.option("--enable/--disable", "enabled", default=None, help="Whether it is asked at all.")
@click.option("--priority", type=int, help="The lowest is asked first.")
def change(settings: Settings, carrier: str, enabled: bool | None, priority: int | None) -> None:
    """Switch CARRIER on or off, or give it another priority.

    A running service follows within a second.

    \b
    heliograph carriers change relay-1 --disable
    heliograph carriers change relay-2 --enable --priority 5
    """
    wanted = CarrierChange(enabled=enabled, priority=priority)
    found = with_store(settings, "Changing", lambda store: change_carrier(store, COMMAND_LINE, carrier, wanted))
    click.echo(f"{found.id} is {'enabled' if found.enabled else 'disabled'}, with priority {found.priority}")


@carriers.command()
@with_settings(*STORE_FLAGS)
@AS_JSON
def show(settings: Settings, as_json: bool) -> None:
    """Show the carriers in the order they are asked, and which of them cannot be reached (the default command).

    A carrier that missed five hand-overs in a row is skipped for 5 to 60 seconds at a time; then one
    message tries it. Example: heliograph carriers show
    """

    async def story(store: Store) -> list[CarrierLine]:
        ordered = sorted(
            store.setup.current.carriers, key=lambda carrier: (carrier.channel, carrier.priority, carrier.id)
        )
        uses = await store.carrier_use.recent(store.clock.now())
        return [_line(one, store.circuits.current.get(one.id), uses.get(one.id, RecentUse())) for one in ordered]

    lines = with_store(settings, "Reading", story)
    none = "No carriers are set up: the built-in simulators take everything. See docs/carriers.md."
    show_list(as_json, lines, _text, none=none, indented=True)


def _text(line: CarrierLine) -> str:
    where, hour = ",".join(line.countries), line.last_hour
    counts = f"last hour: {hour.accepted} taken, {hour.refused} refused, {hour.put_off} put off"
    head = f"{line.id:<20} {line.channel:<9} {line.kind:<10} {where:<12} {line.priority:>4}"
    return f"{head}  {_health(line)}; {counts}"


def _line(carrier: CarrierRecord, circuit: Circuit | None, use: RecentUse) -> CarrierLine:
    away, hour = circuit if carrier.enabled else None, use.hour
    return CarrierLine(
        id=carrier.id,
        channel=carrier.channel,
        kind=carrier.kind,
        countries=carrier.countries,
        priority=carrier.priority,
        enabled=carrier.enabled,
        health=health(carrier.enabled, circuit, use.answered).replace("_", " "),
        since=timestamp(away.since) if away else None,
        next_probe=timestamp(away.until) if away else None,
        reason=away.reason if away else None,
        last_hour=LastHour(accepted=hour.accepted, refused=hour.refused, put_off=hour.put_off),
    )


def _health(line: CarrierLine) -> str:
    if line.since is None:
        return line.health
    return f"{line.health} since {line.since}: {line.reason} (next try {line.next_probe})"
