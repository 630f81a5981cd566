"""Twilio Verify v2: start or resend, read, cancel and check verifications (by number or SID), and services."""

from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from heliograph.accept.verify_check import CheckRequest, check_verification
from heliograph.accept.verify_start import (
    VerifyRequest,
    cancel_verification,
    find_verification,
    resend_verification,
    start_verification,
)
from heliograph.compat.call import Call
from heliograph.compat.twilio.codec import VERIFY, account, iso_time
from heliograph.domain.limits import CODE_DIGITS, SECOND_MS
from heliograph.domain.mail.address import parse_address
from heliograph.domain.refusals import InvalidRequest, VerificationNotFound, VerifyRateLimited
from heliograph.storage.search.message_search import Search, VerificationLine
from heliograph.web.request import Response
from heliograph.web.route import answer

STATUSES = {"pending": "pending", "verified": "approved", "expired": "expired", "exhausted": "max_attempts_reached"}
REFUSED = ("CustomCode", "CustomMessage", "Amount", "Payee", "TemplateSid")  # ignoring them would mislead


async def start(call: Call) -> Response:
    """Start a verification. As at Twilio, a second start for a pending number resends the same code."""
    form = call.json
    if given := [name for name in REFUSED if form.get(name)]:
        raise InvalidRequest(
            f"{given[0]} is not possible: codes are made here and sent in texts that the operator has approved.",
            param=given[0],
        )
    to, channel = form.get("To"), form.get("Channel") or "sms"
    found = await _newest(call, to or "")
    if found and found.status == "pending" and found.channel == channel:
        await _send_again(call, found)
        id_ = found.id
    else:
        begun = await start_verification(
            call.context, call.caller, VerifyRequest(to=to, channel=channel, locale=form.get("Locale") or None), None
        )
        id_ = begun.id
    return await _show(call, id_, 201)


async def _send_again(call: Call, found: VerificationLine) -> None:
    try:
        await resend_verification(call.context, call.caller, found.id, None)
    except VerifyRateLimited:
        interval = call.caller.team.record.verify.min_interval_s * SECOND_MS
        if call.context.clock.of(call.team) - _times(found)[-1] >= interval:
            raise
        # The code was sent a moment ago; no resend is needed.


async def read(call: Call) -> Response:
    return await _show(call, (await _named(call, call.params["sid"])).id)


async def update(call: Call) -> Response:
    found = await _named(call, call.params["sid"])
    if call.json.get("Status") != "canceled":
        raise InvalidRequest("Status is canceled: only a code can approve a verification.", param="Status")
    if found.status != "pending":
        raise _over(found)
    await cancel_verification(call.context, call.caller, found.id)
    return await _show(call, found.id)


async def check(call: Call) -> Response:
    form = call.json
    name = form.get("VerificationSid") or form.get("To")
    if not name:
        raise InvalidRequest("To or VerificationSid is needed.", param="To")
    found = await _named(call, name)
    if found.status == "exhausted":
        raise VerifyRateLimited("Too many wrong codes. Start a new verification.", details={"checks": found.wrong})
    if found.status != "pending":
        raise _over(found)
    checked = await check_verification(call.context, call.caller, found.id, CheckRequest(code=form.get("Code")))
    status = "approved" if checked.verified else "pending"  # even after the last wrong code; then 429
    return answer(_record(call, found) | {"status": status, "valid": checked.verified})


async def create_service(call: Call) -> Response:
    """Return a service with a SID derived from its name. Any `VA…` SID means the team's only service."""
    name = call.json.get("FriendlyName")
    if not name:
        raise InvalidRequest("FriendlyName is needed.", param="FriendlyName")
    sid = "VA" + sha256(f"{call.caller.team.record.id}/{name}".encode()).hexdigest()[:32]
    return answer(_service(call, sid, name), 201)


async def service(call: Call) -> Response:
    return answer(_service(call, call.params["service"], call.caller.team.record.name))


def _service(call: Call, sid: str, name: str) -> dict[str, Any]:
    now, url = iso_time(call.context.clock.of(call.team)), f"{call.context.base_url}{VERIFY}/{sid}"
    return {
        "sid": sid,
        "account_sid": account(call.request),
        "friendly_name": name,
        "code_length": CODE_DIGITS,
        "lookup_enabled": False,
        "psd2_enabled": False,
        "skip_sms_to_landlines": False,
        "dtmf_input_required": False,
        "tts_name": None,
        "do_not_share_warning_enabled": True,
        "custom_code_enabled": False,
        "push": None,
        "totp": None,
        "whatsapp": None,
        "default_template_sid": None,
        "date_created": now,
        "date_updated": now,
        "url": url,
        "links": {"verifications": f"{url}/Verifications"},
    }


async def _named(call: Call, name: str) -> VerificationLine:
    """Return the verification with this id, or the newest of this number or address."""
    if name.startswith("vrf_"):
        return await find_verification(call.context, call.caller, name)
    found = await _newest(call, name)
    if found is None:
        raise VerificationNotFound(f"No verification of {name[:80]!r}.", param="To")
    return found


def _over(found: VerificationLine) -> VerificationNotFound:
    """Return "not found" for a finished verification, as Twilio's clients expect."""
    return VerificationNotFound(f"The verification {found.id} is {found.status}. Start a new one.", param="Sid")


async def _newest(call: Call, to: str) -> VerificationLine | None:
    address = parse_address(to)
    wanted = Search(limit=1, address=address.normal if address else to)
    found = await call.context.store.verifications.search(call.team, wanted)
    return next(iter(found.lines), None)


async def _show(call: Call, id_: str, status: int = 200) -> Response:
    return replace(answer(_record(call, await find_verification(call.context, call.caller, id_)), status), made=id_)


def _record(call: Call, found: VerificationLine) -> dict[str, Any]:
    canceled = "canceled" if found.reason == "canceled" else "failed"
    times = _times(found)
    return {
        "sid": found.id,
        "service_sid": call.params["service"],
        "account_sid": account(call.request),
        "to": found.to,
        "channel": found.channel,
        "status": STATUSES.get(found.status, canceled),
        "valid": found.status == "verified",
        "lookup": {},
        "amount": None,
        "payee": None,
        "sna": None,
        "send_code_attempts": [
            {"attempt_sid": f"{found.id}-{number}", "channel": found.channel, "time": iso_time(at)}
            for number, at in enumerate(times, start=1)
        ],
        "date_created": iso_time(found.created_at),
        "date_updated": iso_time(times[-1]),
        "url": _url(call, f"/Verifications/{found.id}"),
    }


def _times(found: VerificationLine) -> list[int]:
    """Return the times at which the code was sent."""
    return [found.created_at, *map(int, found.resent.split())]


def _url(call: Call, rest: str) -> str:
    return f"{call.context.base_url}{VERIFY}/{call.params['service']}{rest}"
