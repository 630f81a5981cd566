"""Decisions on messages that wait for approval: a person releases or rejects each message once."""

from heliograph.changes.fields import ONE_LINE_ERROR, is_single_line
from heliograph.domain.audit.actor import Actor
from heliograph.domain.refusals import AlreadyDecided, ApprovalNotFound, InvalidRequest
from heliograph.domain.setup.records import TeamRecord
from heliograph.domain.text import quoted
from heliograph.storage.approvals import Approval
from heliograph.storage.store import Store


async def find(store: Store, id_: str, team: TeamRecord | None = None) -> Approval:
    """Return the approval with this id, of `team` if it is not None; raise ApprovalNotFound if there is none."""
    approval = await store.approvals.find(id_)
    if approval is None or (team is not None and approval.team != team.ref):
        raise ApprovalNotFound(f"There is no approval {quoted(id_)}. {ApprovalNotFound.fix}", param="id")
    return approval


async def release(store: Store, actor: Actor, approval: Approval, decided_by: str = "") -> Approval:
    """Release a message for delivery; return its approval.

    `decided_by`: name of the person who decided, if `actor` is an API key that acts for its own user.
    """
    return await _decide(store, actor, approval, decided_by, released=True)


async def reject(store: Store, actor: Actor, approval: Approval, decided_by: str = "") -> Approval:
    """Reject a message, which then fails; return its approval.

    `decided_by`: name of the person who decided, if `actor` is an API key that acts for its own user.
    """
    return await _decide(store, actor, approval, decided_by, released=False)


async def _decide(store: Store, actor: Actor, approval: Approval, decided_by: str, *, released: bool) -> Approval:
    if decided_by and not is_single_line(decided_by):
        raise InvalidRequest(f"by: {ONE_LINE_ERROR}", param="by")
    team = store.setup.current.teams_by_ref[approval.team].record.id
    action, decide = (
        ("message.release", store.approvals.release) if released else ("message.reject", store.approvals.reject)
    )
    entry = actor.audit_entry(store.clock.now(), action, approval.message_id, decided_by, team=team)
    if not await decide(approval, entry):
        raise AlreadyDecided
    return await find(store, approval.id)
