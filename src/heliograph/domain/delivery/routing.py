"""Routing: the carrier and the sender id of a message."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from heliograph.domain.setup.records import CHANNELS, CarrierRecord, Channel, Team

DEFERRALS_BEFORE_NEXT = 2  # deferrals by a carrier before the next carrier is tried (contract 14, `priority`)
SIMULATORS: dict[Channel, CarrierRecord] = {
    channel: CarrierRecord(id=f"simulator-{channel}", channel=channel, kind="simulator") for channel in CHANNELS
}


def candidate_carriers(channel: Channel, country: str | None, carriers: Iterable[CarrierRecord]) -> list[CarrierRecord]:
    """Return the carriers to try, in order. A channel without configured carriers uses its built-in simulator."""
    configured = [carrier for carrier in carriers if carrier.channel == channel]
    if not configured:
        return [builtin_simulator(channel)]
    serving = [carrier for carrier in configured if carrier.enabled and _serves(carrier, country)]
    return sorted(serving, key=lambda carrier: (carrier.priority, carrier.id))


class Routes(dict[tuple[Channel, str | None], list[CarrierRecord]]):
    """Cache of the carriers to try, in order, by channel and country; valid until the setup changes."""

    def __init__(self, carriers: Sequence[CarrierRecord] = ()) -> None:
        self._carriers = carriers

    def __missing__(self, route: tuple[Channel, str | None]) -> list[CarrierRecord]:
        carriers = self[route] = candidate_carriers(*route, self._carriers)
        return carriers


def _serves(carrier: CarrierRecord, country: str | None) -> bool:
    # An email address has no country.
    return carrier.channel == "email" or "*" in carrier.countries or country in carrier.countries


def blocking_carrier(candidates: Sequence[CarrierRecord], open_circuits: Container[str]) -> CarrierRecord | None:
    """Return the unreachable carrier that messages wait for; None if a candidate is reachable, or there is none."""
    return candidates[0] if candidates and all(carrier.id in open_circuits for carrier in candidates) else None


def leaves_platform(candidates: Sequence[CarrierRecord]) -> bool:
    """Return whether messages sent by these carriers reach real recipients; True if the list is empty."""
    return not candidates or candidates[0].kind != "simulator"


def simulated_channels(carriers: Sequence[CarrierRecord]) -> list[Channel]:
    """Return the channels that are served only by simulators."""
    channels: list[Channel] = []
    for channel in CHANNELS:
        configured = [carrier for carrier in carriers if carrier.channel == channel]
        enabled = [carrier for carrier in configured if carrier.enabled] if configured else [builtin_simulator(channel)]
        if enabled and all(carrier.kind == "simulator" for carrier in enabled):
            channels.append(channel)
    return channels


def disabled_channels(carriers: Sequence[CarrierRecord]) -> list[Channel]:
    """Return the channels whose carriers are all disabled: emails wait, other messages are refused."""
    return blocked_channels(carriers, ())


def blocked_channels(carriers: Sequence[CarrierRecord], open_circuits: Container[str]) -> list[Channel]:
    """Return the channels whose carriers are all disabled or unreachable, so that no message can be sent."""
    usable_channels = {carrier.channel for carrier in carriers if carrier.enabled and carrier.id not in open_circuits}
    configured = {carrier.channel for carrier in carriers}
    return [channel for channel in CHANNELS if channel in configured - usable_channels]


def builtin_simulator(channel: Channel) -> CarrierRecord:
    return SIMULATORS[channel]


def simulator_ids(carriers: Iterable[CarrierRecord]) -> list[str]:
    """Return the ids of all simulators, both configured and built-in."""
    configured = [carrier.id for carrier in carriers if carrier.kind == "simulator"]
    return [*configured, *(simulator.id for simulator in SIMULATORS.values())]


def choose_carrier(
    candidates: Sequence[CarrierRecord], deferrals: Mapping[str, int], open_circuits: Collection[str]
) -> CarrierRecord | None:
    """Return the carrier for the next attempt; None if none is reachable.

    After every two deferrals by one carrier, the next candidate is chosen.
    """
    reachable = [carrier for carrier in candidates if carrier.id not in open_circuits] if open_circuits else candidates
    if len(reachable) < 2:
        return reachable[0] if reachable else None
    return min(reachable, key=lambda carrier: deferrals.get(carrier.id, 0) // DEFERRALS_BEFORE_NEXT)


def sender_id(team: Team, country: str | None) -> str | None:
    """Return the team's approved sender id for the country; None to use the platform's or carrier's (spec 4.2)."""
    team_sender_id = team.sender_ids.get(country) if country else None
    return team_sender_id.value if team_sender_id and team_sender_id.approved else None
