"""Verified recipients of a sandbox team. Each enters a code to confirm that they want the team's messages.

The mail with a code is sent within the request and not stored, so that the team cannot read the code. A phone is
verified as by POST /v1/verify, with the same limits. If the channel is simulated, the recipient gets no message, so the
page shows the code.
"""

from urllib.parse import urlencode

from msgspec.structs import replace

from heliograph.accept.verify_check import CheckRequest, check_verification
from heliograph.accept.verify_start import VerifyRequest, start_verification
from heliograph.dashboard.page_request import Page, PageNotFound, PageRequest, PageResponse, Redirect
from heliograph.dashboard.views import senders
from heliograph.domain.mail.system_mail import SystemMail
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.recipient_code import is_valid_code, recipient_code
from heliograph.domain.setup.records import Caller
from heliograph.domain.setup.values import read_recipient
from heliograph.domain.text import remove_linkable_words
from heliograph.manage import platform_mail, recipients


async def send_code(request: PageRequest) -> PageResponse:
    if not request.team.sandbox:
        raise PageNotFound
    try:
        address = recipients.read_new_recipient(request.actor, request.team, request.form.get("address", ""))
        params = {"address": address}
        if not is_simulated(request, address):
            params |= await _send_mail(request, address) if "@" in address else await _send_sms(request, address)
    except Refusal as refusal:
        return senders.new_sender_page(request, "recipients", address=refusal.message)
    await recipients.log_code_sent(request.store, request.actor, request.team.record.id, address)
    return Redirect(f"{request.team_path}/senders/recipients?{urlencode(params)}")


async def show_new(request: PageRequest) -> PageResponse:
    if not request.team.sandbox:
        raise PageNotFound
    return senders.new_sender_page(request, "recipients")


async def show(request: PageRequest) -> PageResponse:
    return _page(request, request.query)


async def confirm(request: PageRequest) -> PageResponse:
    """Add the recipient to the team's verified recipients if the code entered is correct."""
    form, context, team = request.form, request.context, request.team.record
    address, limits = _parse_address(request, form), {f"recipient code {team.id}": recipients.CODE_ATTEMPTS_MAX}
    if await request.store.attempt_limiter.record_attempt(limits, context.clock.now()):
        return _page(request, form, "Too many wrong codes. Try again in 15 minutes.")
    try:
        if id_ := form.get("verification"):
            is_correct = await _is_verified(request, id_, address)
        else:
            is_correct = is_valid_code(context.code_key, team.id, address, form.get("code", ""), context.clock.now())
    except Refusal as refusal:
        return _page(request, form, refusal.message)
    if not is_correct:
        return _page(request, form, "This code is wrong or expired.")
    await request.store.attempt_limiter.remove_last_attempt(limits)
    await recipients.add(request.store, request.actor, team.id, address)
    return Redirect(f"{request.team_path}/senders", f"{address} verified. This team can now send to it.")


def _page(request: PageRequest, fields: dict[str, str], error: str = "") -> Page:
    address, code = _parse_address(request, fields), ""
    if is_simulated(request, address):
        code = recipient_code(request.context.code_key, request.team.record.id, address, request.context.clock.now())
    values = {"address": address, "verification": fields.get("verification", ""), "code": code, "error": error}
    return Page("sender_recipient.html", values, 400 if error else 200)


def is_simulated(request: PageRequest, address: str) -> bool:
    """Return whether the address's channel has no real carrier, not even a disabled or unreachable one."""
    return platform_mail.has_only_simulators(request.setup, "email" if "@" in address else "sms")


def _parse_address(request: PageRequest, fields: dict[str, str]) -> str:
    try:
        address: str = read_recipient(fields.get("address", ""))
    except ValueError:
        raise PageNotFound from None
    if not request.team.sandbox:
        raise PageNotFound
    return address


# -- phone --------------------------------------------------------------------------------------------------


def _verifying_caller(request: PageRequest, phone: str) -> Caller:
    """Return the team as caller that may verify this phone, whatever the team's plan."""
    team = request.team
    record = replace(team.record, features=("verify",))
    return replace(request.caller, team=replace(team, record=record, recipients=frozenset({phone})))


async def _send_sms(request: PageRequest, phone: str) -> dict[str, str]:
    record = (
        await start_verification(request.context, _verifying_caller(request, phone), VerifyRequest(to=phone), None)
    ).new_record
    if record.error_message:
        raise Refusal(f"The SMS could not be sent. {record.error_message}")
    return {"verification": record.id}


async def _is_verified(request: PageRequest, id_: str, phone: str) -> bool:
    """Return whether the code is correct. Raises PageNotFound if the verification is of another phone."""
    verification = await request.context.store.verifications.get(request.team.record.ref, id_)
    if verification is None or verification.phone != phone:
        raise PageNotFound
    check = CheckRequest(code=request.form.get("code", "").strip())
    return (await check_verification(request.context, _verifying_caller(request, phone), id_, check)).verified


# -- email address ------------------------------------------------------------------------------------------


NAME_MAX = 60  # maximum characters of the team's name in the mail


async def _send_mail(request: PageRequest, address: str) -> dict[str, str]:
    team, brand, now = request.team.record, request.setup.platform.brand, request.context.clock.now()
    code = recipient_code(request.context.code_key, team.id, address, now)
    name = remove_linkable_words(team.name).replace('"', "'")[:NAME_MAX]
    name_sentence = f' The team is called "{name}".' if name else ""
    await platform_mail.send_system_mail(
        request.store,
        request.context.failover,
        team.id,
        address,
        SystemMail(
            subject=f"{brand}: confirm test messages",
            summary=f"A team that uses {brand} wants to send test messages to {address}.{name_sentence}",
            action="If you agree, give the team this code:",
            code=code,
            footer="If not, ignore this email. You won't get any more.",
        ),
    )
    return {}
