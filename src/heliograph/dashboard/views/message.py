"""One message: live timeline, content, and resending."""

import msgspec
from msgspec.structs import replace

from heliograph.accept.resend import UNREACHED, Undelivered, can_resend, resend
from heliograph.dashboard.live import Pulse, Watch
from heliograph.dashboard.page_request import Answer, Download, Gone, Page, Redirect, Visit
from heliograph.dashboard.recipient_view import WaitedFor, again, normal_addresses, summary, tell
from heliograph.dashboard.render import CHANNEL_NAMES, host
from heliograph.dashboard.views.live import stream
from heliograph.dashboard.views.messages import is_id, template_name
from heliograph.dashboard.views.previews import framed
from heliograph.domain.delivery.content import EmailContent, SmsContent, WhatsappContent
from heliograph.domain.delivery.magic_recipients import is_magic
from heliograph.domain.delivery.routing import waited_for
from heliograph.domain.refusals import Refusal
from heliograph.domain.sending.send_options import Added, read_record
from heliograph.domain.setup.records import Key
from heliograph.storage.search.message_search import MessageDetails, MessageRow
from heliograph.storage.stats import QUEUE_MOST
from heliograph.texts.explain import CARRIER_NAMES, SIMULATED, tried_for
from heliograph.web.read_budget import work
from heliograph.webhooks.policy.bin import is_bin

LIVE_S = 1.0  # interval of checks for changes of a message
KINDS = {"email": EmailContent, "sms": SmsContent, "whatsapp": WhatsappContent}
WORST = ("bad", "wait", "info", "good")


async def show(visit: Visit) -> Answer:
    return await _page(visit, await _whole(visit))


def _id(visit: Visit) -> str:
    if not is_id(visit.params["id"]):
        raise Gone
    return visit.params["id"]


async def _whole(visit: Visit) -> MessageDetails:
    hooks = [hook.id for hook in visit.team.webhooks]
    found = await visit.store.messages.whole(visit.team.record.ref, _id(visit), hooks, visit.hold)
    if found is None:
        raise Gone
    return found


async def _page(visit: Visit, found: MessageDetails, wrong: str = "") -> Page:
    facts = found.facts
    record = read_record(facts.record)
    content = None
    if facts.content:
        content = await work(facts.size, msgspec.json.decode, facts.content, type=KINDS[facts.channel])
    key = visit.setup.records.get(("key", facts.key_id))
    moves = facts.ended_at is None and visit.request.method == "GET"
    suppressed = await visit.store.suppressions.among(visit.team.record.ref, normal_addresses(found))
    told = tell(found, suppressed, paused=visit.setup.platform.paused, waited=await _waited_for(visit, facts))
    values = {
        "facts": facts,
        "record": record,
        "content": content,
        "name": CHANNEL_NAMES[facts.channel],
        "title": record.subject or f"{CHANNEL_NAMES[facts.channel]} to {record.to}",
        "template": template_name(visit, facts.template_id),
        "key": key.name if isinstance(key, Key) else facts.key_id,
        "key_page": f"{visit.base}/keys/{key.id}" if isinstance(key, Key) and visit.may("developer") else "",
        "fates": told,
        "hooks": {
            hook.id: "Webhook bin" if is_bin(visit.context.base_url, hook.url) else host(hook.url)
            for hook in visit.team.webhooks
        },
        "kind": min((one.why.kind for one in told), key=WORST.index),
        "summary": summary(told),
        "tried_for": tried_for(facts.channel),
        "many": QUEUE_MOST,
        "again": again(told),
        "magic": {one.line.given for one in told if is_magic(one.line.given)},
        "simulated_text": SIMULATED,
        "live": f"{visit.base}/messages/{facts.id}/live?seen={found.pulse}" if moves else "",
        "simulated": any(one.simulated for one in told),
        "images": "images" in visit.query,
        "can_resend": facts.content is not None and can_resend(_unreached(found)) and visit.may("developer"),
        "wrong": wrong,
    }
    return Page("message.html", values, 400 if wrong else 200, facts.size)


async def _waited_for(visit: Visit, facts: MessageRow) -> WaitedFor | None:
    circuits = visit.store.circuits.current
    if facts.ended_at is not None or visit.team.simulated or not circuits:
        return None
    carrier = waited_for(visit.setup.routes[facts.channel, facts.country], circuits)
    if carrier is None:
        return None
    return WaitedFor(
        id=carrier.id,
        name=CARRIER_NAMES.get(carrier.kind, "carrier"),
        since=circuits[carrier.id].since,
        waiting=await visit.store.figures.held(visit.team.record.ref, facts.channel),
    )


async def live(visit: Visit) -> Answer:
    team, id_ = visit.team.record.ref, _id(visit)

    async def pulse() -> Pulse | None:
        found = await visit.store.pulses.message(team, id_)
        return Pulse({"events": found.word}, over=found.has_ended) if found else None

    if await pulse() is None:
        raise Gone
    return stream(visit, Watch(key=("message", str(team), id_), read=pulse, parts=("events",), every_s=LIVE_S))


# -- content -----------------------------------------------------------------------------------------------------


async def preview(visit: Visit) -> Answer:
    found = await _email(visit)

    def frame() -> Download:
        html = msgspec.json.decode(found.content, type=EmailContent).html
        if html is None:
            raise Gone
        return framed(html, images="images" in visit.query)

    return await work(len(found.content), frame)


async def source(visit: Visit) -> Answer:
    """Return the MIME source of the mail; only the DKIM signature is missing, which is added at each send."""
    found = await _email(visit)
    mail = await visit.tools.eml(found.id, found.content, visit.hold)
    if "download" in visit.query:
        return Download(mail, "message/rfc822", f"{found.id}.eml")
    return Download(mail, "text/plain; charset=utf-8")


class StoredEmail(msgspec.Struct, frozen=True):
    id: str
    content: str


async def _email(visit: Visit) -> StoredEmail:
    found = await visit.store.messages.facts(visit.team.record.ref, _id(visit), visit.hold)
    if found is None or found.content is None or found.channel != "email":
        raise Gone
    return StoredEmail(found.id, found.content)


# -- resending ---------------------------------------------------------------------------------------------------


async def send_again(visit: Visit) -> Answer:
    found = await _whole(visit)
    facts, unreached = found.facts, _unreached(found)
    if facts.content is None or not can_resend(unreached):
        return await _page(visit, found, "Nobody is left to resend this to, or its content is no longer kept.")
    unsent = Undelivered(
        added=msgspec.json.decode(facts.record, type=Added),
        channel=facts.channel,
        content=facts.content.encode(),
        template_id=facts.template_id,
        template_version=facts.template_version,
        country=facts.country,
        unreached=unreached,
    )
    caller = replace(visit.caller, entry=lambda id_: visit.entry("message.resend", facts.id, id_))
    try:
        sent = await resend(visit.context, caller, unsent)
    except Refusal as refusal:
        return await _page(visit, found, str(refusal))
    return Redirect(f"{visit.base}/messages/{sent.id}", f"Sent again, as this new message. The old one is {facts.id}.")


def _unreached(found: MessageDetails) -> list[tuple[str, str]]:
    return [(one.given, one.kind) for one in found.recipients if one.status in UNREACHED]
