"""Which carrier takes a message, and under which sender id."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import get_args

from heliograph.domain.setup.records import CarrierRecord, Channel, Team

DEFERRALS_BEFORE_NEXT = 2  # contract 14, `priority`
SIMULATORS: dict[Channel, CarrierRecord] = {
    channel: CarrierRecord(id=f"simulator-{channel}", channel=channel, kind="simulator")
    for channel in get_args(Channel)
}


def candidates(channel: Channel, country: str | None, carriers: Iterable[CarrierRecord]) -> list[CarrierRecord]:
    """Return the carriers to ask, in order; a channel for which none is set up is served by its simulator."""
    configured = [carrier for carrier in carriers if carrier.channel == channel]
    if not configured:
        return [builtin_simulator(channel)]
    serving = [carrier for carrier in configured if carrier.enabled and _serves(carrier, country)]
    return sorted(serving, key=lambda carrier: (carrier.priority, carrier.id))


class Routes(dict[tuple[Channel, str | None], list[CarrierRecord]]):
    """The carriers to ask, in order, by channel and country: each found once, as long as the setup stays."""

    def __init__(self, carriers: Sequence[CarrierRecord] = ()) -> None:
        self._carriers = carriers

    def __missing__(self, where: tuple[Channel, str | None]) -> list[CarrierRecord]:
        found = self[where] = candidates(*where, self._carriers)
        return found


def _serves(carrier: CarrierRecord, country: str | None) -> bool:
    # An email address has no country.
    return carrier.channel == "email" or "*" in carrier.countries or country in carrier.countries


def waited_for(asked: Sequence[CarrierRecord], open_circuits: Container[str]) -> CarrierRecord | None:
    """Return the carrier that messages for these candidates wait for; None: one of them can be reached, or none is."""
    return asked[0] if asked and all(carrier.id in open_circuits for carrier in asked) else None


def leaves(asked: Sequence[CarrierRecord]) -> bool:
    """Tell whether a message for these candidates goes out into the world; also when none is there to take it."""
    return not asked or asked[0].kind != "simulator"


def simulated_channels(carriers: Sequence[CarrierRecord]) -> list[Channel]:
    """Return the channels of which nothing leaves: only simulators take their messages."""
    found: list[Channel] = []
    for channel in get_args(Channel):
        configured = [carrier for carrier in carriers if carrier.channel == channel]
        enabled = [carrier for carrier in configured if carrier.enabled] if configured else [builtin_simulator(channel)]
        if enabled and all(carrier.kind == "simulator" for carrier in enabled):
            found.append(channel)
    return found


def closed_channels(carriers: Sequence[CarrierRecord]) -> list[Channel]:
    """Return the channels whose carriers are all disabled: emails wait, other messages are refused."""
    served = {carrier.channel for carrier in carriers if carrier.enabled}
    known = {carrier.channel for carrier in carriers}
    return [channel for channel in get_args(Channel) if channel in known - served]


def builtin_simulator(channel: Channel) -> CarrierRecord:
    return SIMULATORS[channel]


def simulator_ids(carriers: Iterable[CarrierRecord]) -> list[str]:
    """List the carriers that send nothing: those that are set up, and the built-in ones."""
    configured = [carrier.id for carrier in carriers if carrier.kind == "simulator"]
    return [*configured, *(builtin_simulator(channel).id for channel in get_args(Channel))]


def choose(
    candidates: Sequence[CarrierRecord], deferrals: Mapping[str, int], open_circuits: Collection[str]
) -> CarrierRecord | None:
    """Return the carrier for the next attempt: another after every two deferrals, None when none is reachable."""
    reachable = [carrier for carrier in candidates if carrier.id not in open_circuits] if open_circuits else candidates
    if len(reachable) < 2:
        return reachable[0] if reachable else None
    return min(reachable, key=lambda carrier: deferrals.get(carrier.id, 0) // DEFERRALS_BEFORE_NEXT)


def sender_id(team: Team, country: str | None) -> str | None:
    """Return the team's approved sender id for the country; None: the platform's, or the carrier's own (spec 4.2)."""
    own = team.sender_ids.get(country) if country else None
    return own.value if own and own.approved else None
