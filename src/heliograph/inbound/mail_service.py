"""Inbound mail of teams: stored, recorded and published before the sending server receives a success reply."""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from heliograph.domain.mail import verp
from heliograph.domain.mail.address import Address, parse_address
from heliograph.domain.setup.records import Team
from heliograph.inbound.policy.inbound_mail import Authentication, ReadMail, texts_of, to_record, told
from heliograph.inbound.store.inbound_mail import NewReceived
from heliograph.storage.store import Store

log = structlog.get_logger()


class Incoming:
    def __init__(self, store: Store, reply_key: bytes, new_id: Callable[[str], str]) -> None:
        self._store = store
        self._key = reply_key
        self._new_id = new_id

    def owner(self, address: str) -> str | None:
        """Return the id of the team that owns this address; None if unknown."""
        parsed = parse_address(address)
        team = self._store.setup.current.team_of(parsed) if parsed else None
        return team.record.id if team else None

    async def take(self, raw: bytes, mail: ReadMail, recipients: Sequence[str], judged: Authentication) -> None:
        """Store a mail once for each recipient team and publish its events.

        Raises StorageLimitReached. Teams that already have the mail are unaffected when the sender retries.
        """
        digest = await self._store.received.keep(raw)
        for team, addresses in self._by_team(recipients):
            new = self._new(team, addresses, len(raw), mail, judged)
            fate = await self._store.received.put(new, digest)
            log.info("mail received", team=team.record.id, received=new.id, fate=fate, automatic=mail.automatic)

    def _new(
        self, team: Team, addresses: Sequence[Address], size: int, mail: ReadMail, judged: Authentication
    ) -> NewReceived:
        answered = (verp.read_reply(self._key, one.normal, team.record.id) for one in addresses)
        id_, sender = self._new_id("rcv_"), parse_address(mail.from_)
        whole = to_record(id_, mail, addresses, next(filter(None, answered), None), judged)
        short = told(whole)
        return NewReceived(
            id=id_,
            team=team.record.ref,
            sender=sender.normal if sender else "",
            size=size,
            automatic=mail.automatic,
            record=msgspec.json.encode(short).decode(),
            body=None if short == whole else msgspec.json.encode(texts_of(whole)).decode(),
            octets_most=team.record.octets_most,
        )

    def _by_team(self, recipients: Sequence[str]) -> list[tuple[Team, list[Address]]]:
        teams: dict[str, tuple[Team, list[Address]]] = {}
        for address in filter(None, map(parse_address, recipients)):
            if team := self._store.setup.current.team_of(address):
                teams.setdefault(team.record.id, (team, []))[1].append(address)
        return list(teams.values())
