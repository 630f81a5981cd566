"""Short ways to build messages and verifications as the accept functions pass them to the store."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from heliograph.domain.accounts.people import Person, set_roles
from heliograph.domain.audit.actor import COMMAND_LINE, AuditEntry
from heliograph.domain.delivery.lanes import LANE_BY_CHANNEL
from heliograph.domain.limits import CONTACT_PAUSE_MAX_MS, LEASE_MS, VERIFICATION_MS
from heliograph.domain.refusals import Refusal
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import (
    Acceptance,
    AcceptedRecipient,
    AcceptState,
    Decision,
    IdempotencyKey,
)
from heliograph.runtime.clock import Clock
from heliograph.storage.people import People
from heliograph.storage.store import Store
from heliograph.storage.verifications import Check, Finish, Start, VelocityWindow
from tests.clocks import TestClock

ENTRY = COMMAND_LINE.audit_entry(0, "test", "")  # audit entry for tests that do not check the audit log
KEY = "key"  # the API key of all these messages
RIGHT, WRONG = "right", "wrong"
PHONE = "+14155550100"


async def settle(people: People, email: str, name: str, roles: dict[str, str], entry: AuditEntry = ENTRY) -> Person:
    """Create a user who has these roles without an invitation; an empty team makes an operator."""
    offered = await people.change_by_email(
        email, name, roles, lambda item: set_roles(item, roles, entry, invites=False)
    )
    return offered.person


def message(
    clock: Clock,
    *addresses: str,
    team: int = 1,
    channel: Any = "email",
    price: int = 0,
    says: Mapping[str, Any] = {},
    decide: Callable[[AcceptState], Decision] | None = None,
    **more: Any,
) -> Acceptance:
    """Return a message whose response is its id and `says`; its price is `price`."""
    id_ = clock.new_id("eml_")
    to = addresses or ("ada@example.com",)

    def take(state: AcceptState) -> Decision:
        pricing.hold(state.account, price)
        recipients = [AcceptedRecipient(address, address, "to") for address in to]
        return Decision(response=msgspec.json.encode({"id": id_, **says}), recipients=recipients, price=price)

    fields: dict[str, Any] = {
        "id": id_,
        "team": team,
        "channel": channel,
        "lane": LANE_BY_CHANNEL[channel],
        "status": "sending",
        "sandbox": False,
        "key_id": KEY,
        "created_at": clock.now(),
        "content": b'{"text":"hello"}',
        "decide": decide or take,
    }
    return Acceptance(**fields | more)


async def send_email(
    store: Store, clock: TestClock, subject: str, *to: str, sender: str = "hi@acme.test", **more: Any
) -> str:
    """Accept an email a second after the previous one, with a searchable record; return its id."""
    clock.forward(1000)
    said = {"to": to[0], "to_addresses": to, "from": sender, "subject": subject, "recipient_count": len(to)}

    def decide(_: AcceptState) -> Decision:
        answer = msgspec.json.encode({"id": item.id, **said})
        return Decision(response=answer, recipients=[AcceptedRecipient(element, element, "to") for element in to])

    item = message(clock, *to, decide=decide, **more)
    await store.messages.accept(item)
    return item.id


def start(clock: Clock, *, check: Callable[[VelocityWindow], None] = lambda recent: None, **more: Any) -> Start:
    """Return the start of a verification whose correct code has the digest of RIGHT."""
    now = clock.now()
    fields: dict[str, Any] = {
        "id": clock.new_id("vrf_"),
        "team": 1,
        "key_id": KEY,
        "phone": PHONE,
        "prefix": PHONE[:-4],
        "is_magic": False,
        "sandbox": False,
        "salt": "salt",
        "digest": digest(RIGHT)("salt"),
        "price": 0,
        "created_at": now,
        "expires_at": now + VERIFICATION_MS,
        "owner": "seat/0",
        "check": check,
    }
    return Start(**fields | more)


def finish(started: Start, clock: Clock, status: str = "pending", response: bytes = b'{"ok":true}') -> Finish:
    error = "refused" if status == "failed" else None
    return Finish(
        id=started.id,
        team=started.team,
        key_id=started.key_id,
        status=status,
        error_message=error,
        response=response,
        at=clock.now(),
        owner=started.owner,
        idempotency_key=started.idempotency_key,
        counted_at=started.created_at,
    )


def check(started: Start, code: str, at: int) -> Check:
    return Check(id=started.id, team=started.team, at=at, digest=digest(code))


def digest(code: str) -> Callable[[str], str]:
    return lambda salt: f"{salt}/{code}"


def retry_key(name: str, body: str = "body") -> IdempotencyKey:
    return IdempotencyKey(name, body)


def refusals(results: Sequence[Any]) -> list[str]:
    return [result.code for result in results if isinstance(result, Refusal)]


async def let_leases_end(store: Store, clock: TestClock, ms: int = LEASE_MS) -> int:
    """Let the time pass while `store` stays in contact with its database; return how many messages it quarantined."""
    quarantined = await store.outbox.reclaim_abandoned()
    for _ in range(ms // CONTACT_PAUSE_MAX_MS):
        clock.forward(CONTACT_PAUSE_MAX_MS)
        quarantined += await store.outbox.reclaim_abandoned()
    return quarantined
