"""Compatibility API for Twilio, Verify v2: services and verifications.

A verification, named by number or SID, is started or resent, read, cancelled and checked.
"""

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
from heliograph.compat.twilio.codec import VERIFY, account_sid, iso_time
from heliograph.domain.limits import CODE_DIGITS, SECOND_MS
from heliograph.domain.mail.address import parse_address
from heliograph.domain.refusals import InvalidRequest, VerificationNotFound, VerifyRateLimited
from heliograph.storage.search.message_search import Search, VerificationRow
from heliograph.web.request import Response
from heliograph.web.route import json_response

STATUS_BY_STATE = {
    "pending": "pending",
    "verified": "approved",
    "expired": "expired",
    "exhausted": "max_attempts_reached",
}
# form fields that are refused, because ignoring them would mislead the client
UNSUPPORTED_FIELDS = ("CustomCode", "CustomMessage", "Amount", "Payee", "TemplateSid")


async def start(call: Call) -> Response:
    """Start a verification. If one is pending for the number, send its code again, as Twilio does."""
    form = call.json
    if unsupported := [name for name in UNSUPPORTED_FIELDS if form.get(name)]:
        raise InvalidRequest(
            f"{unsupported[0]} is not supported: codes are generated here and sent with approved texts.",
            param=unsupported[0],
        )
    to, channel = form.get("To"), form.get("Channel") or "sms"
    newest_verification = await _find_newest(call, to or "")
    if newest_verification and newest_verification.status == "pending" and newest_verification.channel == channel:
        await _resend(call, newest_verification)
        id_ = newest_verification.id
    else:
        started = await start_verification(
            call.context, call.caller, VerifyRequest(to=to, channel=channel, locale=form.get("Locale") or None), None
        )
        id_ = started.id
    return await _verification_response(call, id_, 201)


async def _resend(call: Call, verification: VerificationRow) -> None:
    try:
        await resend_verification(call.context, call.caller, verification.id, None)
    except VerifyRateLimited:
        interval = call.caller.team.record.verify.min_interval_s * SECOND_MS
        if call.context.clock.team_now(call.team) - _sent_times(verification)[-1] >= interval:
            raise  # otherwise the code was sent a moment ago, and need not be sent again


async def read(call: Call) -> Response:
    return await _verification_response(call, (await _find_by_id_or_recipient(call, call.params["sid"])).id)


async def update(call: Call) -> Response:
    verification = await _find_by_id_or_recipient(call, call.params["sid"])
    if call.json.get("Status") != "canceled":
        raise InvalidRequest("Status must be canceled: only a code can approve a verification.", param="Status")
    if verification.status != "pending":
        raise _finished_error(verification)
    await cancel_verification(call.context, call.caller, verification.id)
    return await _verification_response(call, verification.id)


async def check(call: Call) -> Response:
    form = call.json
    name = form.get("VerificationSid") or form.get("To")
    if not name:
        raise InvalidRequest("To or VerificationSid is required.", param="To")
    verification = await _find_by_id_or_recipient(call, name)
    if verification.status == "exhausted":
        raise VerifyRateLimited(
            "Too many wrong codes. Start a new verification.", details={"checks": verification.wrong}
        )
    if verification.status != "pending":
        raise _finished_error(verification)
    result = await check_verification(call.context, call.caller, verification.id, CheckRequest(code=form.get("Code")))
    # After the last permitted wrong code, the status is still pending; the next attempt gets 429.
    status = "approved" if result.verified else "pending"
    return json_response(_verification_json(call, verification) | {"status": status, "valid": result.verified})


async def create_service(call: Call) -> Response:
    """Return a service with a SID derived from its name. Any SID (`VA…`) means the team's only service."""
    name = call.json.get("FriendlyName")
    if not name:
        raise InvalidRequest("FriendlyName is required.", param="FriendlyName")
    sid = "VA" + sha256(f"{call.team_id}/{name}".encode()).hexdigest()[:32]
    return json_response(_service(call, sid, name), 201)


async def read_service(call: Call) -> Response:
    return json_response(_service(call, call.params["service"], call.caller.team.record.name))


def _service(call: Call, sid: str, name: str) -> dict[str, Any]:
    now, url = iso_time(call.context.clock.team_now(call.team)), f"{call.context.base_url}{VERIFY}/{sid}"
    return {
        "sid": sid,
        "account_sid": account_sid(call.request),
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


async def _find_by_id_or_recipient(call: Call, name: str) -> VerificationRow:
    """Return the verification with this id, or the newest one of this number or address."""
    if name.startswith("vrf_"):
        return await find_verification(call.context, call.caller, name)
    newest_verification = await _find_newest(call, name)
    if newest_verification is None:
        raise VerificationNotFound(f"No verification for {name[:80]!r}.", param="To")
    return newest_verification


def _finished_error(verification: VerificationRow) -> VerificationNotFound:
    """Return "not found", as Twilio's clients expect for a finished verification."""
    return VerificationNotFound(
        f"The verification {verification.id} is {verification.status}. Start a new one.", param="Sid"
    )


async def _find_newest(call: Call, to: str) -> VerificationRow | None:
    address = parse_address(to)
    search = Search(limit=1, address=address.normal if address else to)
    page = await call.context.store.verifications.search(call.team, search)
    return next(iter(page.rows), None)


async def _verification_response(call: Call, id_: str, status: int = 200) -> Response:
    return replace(
        json_response(_verification_json(call, await find_verification(call.context, call.caller, id_)), status),
        record_id=id_,
    )


def _verification_json(call: Call, verification: VerificationRow) -> dict[str, Any]:
    canceled = "canceled" if verification.reason == "canceled" else "failed"
    times = _sent_times(verification)
    return {
        "sid": verification.id,
        "service_sid": call.params["service"],
        "account_sid": account_sid(call.request),
        "to": verification.to,
        "channel": verification.channel,
        "status": STATUS_BY_STATE.get(verification.status, canceled),
        "valid": verification.status == "verified",
        "lookup": {},
        "amount": None,
        "payee": None,
        "sna": None,
        "send_code_attempts": [
            {"attempt_sid": f"{verification.id}-{number}", "channel": verification.channel, "time": iso_time(at)}
            for number, at in enumerate(times, start=1)
        ],
        "date_created": iso_time(verification.created_at),
        "date_updated": iso_time(times[-1]),
        "url": f"{call.context.base_url}{VERIFY}/{call.params['service']}/Verifications/{verification.id}",
    }


def _sent_times(verification: VerificationRow) -> list[int]:
    """Return the times at which the code was sent."""
    return [verification.created_at, *map(int, verification.resent.split())]
