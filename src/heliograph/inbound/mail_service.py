"""Inbound mail of teams. A mail is stored and its event published before the sending server gets a success reply."""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from heliograph.domain.mail import verp
from heliograph.domain.mail.address import Address, parse_address
from heliograph.domain.setup.records import Team
from heliograph.inbound.policy.inbound_mail import Authentication, ParsedMail, full_texts, to_event_record, to_record
from heliograph.inbound.store.inbound_mail import NewInboundMail
from heliograph.storage.store import Store

log = structlog.get_logger()


class InboundMailService:
    """Delivers inbound mail to the teams that own its recipient addresses."""

    def __init__(self, store: Store, reply_key: bytes, new_id: Callable[[str], str]) -> None:
        self._store = store
        self._reply_key = reply_key
        self._new_id = new_id

    def find_team_id(self, address: str) -> str | None:
        """Return the id of the team that receives mail for this address; None if there is no such team."""
        parsed = parse_address(address)
        team = self._store.setup.current.inbound_team(parsed) if parsed else None
        return team.record.id if team else None

    async def deliver(
        self, raw: bytes, mail: ParsedMail, recipients: Sequence[str], authentication: Authentication
    ) -> None:
        """Store a mail once for each recipient team and publish its events.

        Raises StorageLimitReached if a team's storage is full. The sender then sends the mail again; teams that already
        have the mail ignore the repetition.
        """
        digest = await self._store.inbound_mail.store_raw(raw)
        for team, addresses in self._group_by_team(recipients):
            new_mail = self._to_new_mail(team, addresses, len(raw), mail, authentication)
            result = await self._store.inbound_mail.insert(new_mail, digest)
            log.info(
                "mail received", team=team.record.id, received=new_mail.id, result=result, automatic=mail.automatic
            )

    def _to_new_mail(
        self, team: Team, addresses: Sequence[Address], size: int, mail: ParsedMail, authentication: Authentication
    ) -> NewInboundMail:
        replied_to = (
            verp.parse_reply_address(self._reply_key, address.normal, team.record.id) for address in addresses
        )
        id_, sender = self._new_id("rcv_"), parse_address(mail.from_)
        full_record = to_record(id_, mail, addresses, next(filter(None, replied_to), None), authentication)
        event_record = to_event_record(full_record)
        return NewInboundMail(
            id=id_,
            team=team.record.ref,
            sender=sender.normal if sender else "",
            size=size,
            automatic=mail.automatic,
            record=msgspec.json.encode(event_record).decode(),
            body=None if event_record == full_record else msgspec.json.encode(full_texts(full_record)).decode(),
            daily_octets_max=team.record.daily_bytes_limit,
        )

    def _group_by_team(self, recipients: Sequence[str]) -> list[tuple[Team, list[Address]]]:
        teams: dict[str, tuple[Team, list[Address]]] = {}
        for address in filter(None, map(parse_address, recipients)):
            if team := self._store.setup.current.inbound_team(address):
                teams.setdefault(team.record.id, (team, []))[1].append(address)
        return list(teams.values())
