"""`heliograph carriers`: shows carriers with their health and the last hour's results, and changes them."""

import click
import msgspec

from heliograph.cli.options import JSON_OPTION, STORE_FLAGS, DefaultGroup, with_settings, with_store
from heliograph.cli.printing import print_list as show_list
from heliograph.domain.audit.actor import COMMAND_LINE
from heliograph.domain.delivery.circuit import Circuit, circuit_health
from heliograph.domain.ids import timestamp
from heliograph.domain.setup.records import CarrierRecord
from heliograph.manage.carriers import CarrierChange
from heliograph.manage.carriers import change as change_carrier
from heliograph.settings import Settings
from heliograph.storage.carrier_stats import RecentCarrierCounts
from heliograph.storage.store import Store


class LastHour(msgspec.Struct, frozen=True, kw_only=True):
    """Send attempts of the last hour by result. `deferred` includes attempts on unreachable carriers."""

    accepted: int
    refused: int
    deferred: int


class CarrierSummary(msgspec.Struct, frozen=True, kw_only=True):
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


@click.group(cls=DefaultGroup)
def carriers() -> None:
    """Show, enable, disable and prioritize carriers.

    \b
    heliograph carriers
    heliograph carriers change relay-1 --disable
    """


@carriers.command()
@with_settings(*STORE_FLAGS)
@click.argument("carrier")
@click.option("--enable/--disable", "enabled", default=None, help="Enable or disable the carrier.")
@click.option("--priority", type=int, help="The carrier with the lowest number is tried first.")
def change(settings: Settings, carrier: str, enabled: bool | None, priority: int | None) -> None:
    """Enable or disable CARRIER, or change its priority.

    A running service applies the change within a second.

    \b
    heliograph carriers change relay-1 --disable
    heliograph carriers change relay-2 --enable --priority 5
    """
    changes = CarrierChange(enabled=enabled, priority=priority)
    changed = with_store(settings, "Changing", lambda store: change_carrier(store, COMMAND_LINE, carrier, changes))
    click.echo(f"{changed.id} is {'enabled' if changed.enabled else 'disabled'}, with priority {changed.priority}")


@carriers.command()
@with_settings(*STORE_FLAGS)
@JSON_OPTION
def show(settings: Settings, as_json: bool) -> None:
    """Show the carriers in the order they are tried, with health and last hour's results (default command).

    A carrier with five failed attempts in a row is skipped for 5 to 60 seconds at a time, then tried with one
    message. Example: heliograph carriers show
    """

    async def read_summaries(store: Store) -> list[CarrierSummary]:
        ordered = sorted(
            store.setup.current.carriers, key=lambda carrier: (carrier.channel, carrier.priority, carrier.id)
        )
        usage = await store.carrier_stats.read_recent(store.clock.now())
        return [
            _to_summary(carrier, store.circuits.current.get(carrier.id), usage.get(carrier.id, RecentCarrierCounts()))
            for carrier in ordered
        ]

    summaries = with_store(settings, "Reading", read_summaries)
    empty_text = "No carriers are configured: the built-in simulators accept all messages. See docs/carriers.md."
    show_list(as_json, summaries, _format_carrier, empty_text=empty_text, indented=True)


def _format_carrier(summary: CarrierSummary) -> str:
    countries, hour = ",".join(summary.countries), summary.last_hour
    counts = f"last hour: {hour.accepted} accepted, {hour.refused} rejected, {hour.deferred} deferred"
    head = f"{summary.id:<20} {summary.channel:<9} {summary.kind:<10} {countries:<12} {summary.priority:>4}"
    return f"{head}  {_format_health(summary)}; {counts}"


def _to_summary(carrier: CarrierRecord, circuit: Circuit | None, usage: RecentCarrierCounts) -> CarrierSummary:
    open_circuit, hour = circuit if carrier.enabled else None, usage.hour
    return CarrierSummary(
        id=carrier.id,
        channel=carrier.channel,
        kind=carrier.kind,
        countries=carrier.countries,
        priority=carrier.priority,
        enabled=carrier.enabled,
        health=circuit_health(carrier.enabled, circuit, usage.has_accepted).replace("_", " "),
        since=timestamp(open_circuit.since) if open_circuit else None,
        next_probe=timestamp(open_circuit.until) if open_circuit else None,
        reason=open_circuit.reason if open_circuit else None,
        last_hour=LastHour(accepted=hour.accepted, refused=hour.refused, deferred=hour.put_off),
    )


def _format_health(summary: CarrierSummary) -> str:
    if summary.since is None:
        return summary.health
    return f"{summary.health} since {summary.since}: {summary.reason} (next attempt {summary.next_probe})"
