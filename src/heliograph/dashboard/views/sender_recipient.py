"""Verified recipients of a sandbox team: each confirms by a code that they want the team's messages.

A mail with a code is sent within the request and not stored, so that the team cannot read the code among its messages.
A phone is verified like POST /v1/verify, with all its limits. If a channel is simulated, no message reaches the
recipient, so the page shows the code.
"""

from urllib.parse import urlencode

from msgspec.structs import replace

from heliograph.accept.verify_check import CheckRequest, check_verification
from heliograph.accept.verify_start import VerifyRequest, start_verification
from heliograph.dashboard.page_request import Answer, Gone, Page, Redirect, Visit
from heliograph.dashboard.views import senders
from heliograph.domain.mail.system_mail import OwnMail
from heliograph.domain.refusals import Refusal
from heliograph.domain.setup.recipient_code import is_right_code, recipient_code
from heliograph.domain.setup.records import Caller
from heliograph.domain.setup.values import read_recipient
from heliograph.domain.text import without_addresses
from heliograph.manage import platform_mail, recipients


async def ask(visit: Visit) -> Answer:
    """Send a code to the new recipient."""
    if not visit.team.sandbox:
        raise Gone
    try:
        address = recipients.read_new(visit.actor, visit.team, visit.form.get("address", ""))
        there = {"address": address}
        if not is_simulated(visit, address):
            there |= await _send_mail(visit, address) if "@" in address else await _send_sms(visit, address)
    except Refusal as refusal:
        return senders.new_page(visit, "recipients", address=refusal.message)
    await recipients.note_asked(visit.store, visit.actor, visit.team.record.id, address)
    return Redirect(f"{visit.base}/senders/recipients?{urlencode(there)}")


async def new(visit: Visit) -> Answer:
    if not visit.team.sandbox:
        raise Gone
    return senders.new_page(visit, "recipients")


async def show(visit: Visit) -> Answer:
    return _page(visit, visit.query)


async def confirm(visit: Visit) -> Answer:
    """Add the recipient if the code is correct."""
    form, context, team = visit.form, visit.context, visit.team.record
    address, tries = _address(visit, form), {f"recipient code {team.id}": recipients.CODES_MAX}
    if await visit.store.tries.begin(tries, context.clock.now()):
        return _page(visit, form, "Too many wrong codes. Try again in 15 minutes.")
    try:
        if id_ := form.get("verification"):
            right = await _is_verified(visit, id_, address)
        else:
            right = is_right_code(context.code_key, team.id, address, form.get("code", ""), context.clock.now())
    except Refusal as refusal:
        return _page(visit, form, refusal.message)
    if not right:
        return _page(visit, form, "This is not the code, or it is too old.")
    await visit.store.tries.forgive(tries)
    await recipients.add(visit.store, visit.actor, team.id, address)
    return Redirect(f"{visit.base}/senders", f"{address} is verified: this team may send to it.")


def _page(visit: Visit, given: dict[str, str], error: str = "") -> Page:
    address, code = _address(visit, given), ""
    if is_simulated(visit, address):
        code = recipient_code(visit.context.code_key, visit.team.record.id, address, visit.context.clock.now())
    values = {"address": address, "verification": given.get("verification", ""), "code": code, "error": error}
    return Page("sender_recipient.html", values, 400 if error else 200)


def is_simulated(visit: Visit, address: str) -> bool:
    """Return whether the address's channel has no real carrier, not even a disabled or unreachable one."""
    return platform_mail.is_simulated(visit.setup, "email" if "@" in address else "sms")


def _address(visit: Visit, given: dict[str, str]) -> str:
    try:
        address: str = read_recipient(given.get("address", ""))
    except ValueError:
        raise Gone from None
    if not visit.team.sandbox:
        raise Gone
    return address


# -- phone --------------------------------------------------------------------------------------------------


def _caller(visit: Visit, phone: str) -> Caller:
    """Return the team as a caller that may verify this phone, regardless of its plan."""
    team = visit.team
    record = replace(team.record, features=("verify",))
    return replace(visit.caller, team=replace(team, record=record, recipients=frozenset({phone})))


async def _send_sms(visit: Visit, phone: str) -> dict[str, str]:
    record = (await start_verification(visit.context, _caller(visit, phone), VerifyRequest(to=phone), None)).made
    if record.error_message:
        raise Refusal(f"The SMS could not be sent. {record.error_message}")
    return {"verification": record.id}


async def _is_verified(visit: Visit, id_: str, phone: str) -> bool:
    """Return whether the code is correct. Raises Gone if the verification is not for this phone."""
    found = await visit.context.store.verifications.get(visit.team.record.ref, id_)
    if found is None or found.phone != phone:
        raise Gone
    request = CheckRequest(code=visit.form.get("code", "").strip())
    return (await check_verification(visit.context, _caller(visit, phone), id_, request)).verified


# -- email address ------------------------------------------------------------------------------------------


NAME_MAX = 60  # maximum length of the team's name in the mail, in characters


async def _send_mail(visit: Visit, address: str) -> dict[str, str]:
    team, brand, now = visit.team.record, visit.setup.platform.brand, visit.context.clock.now()
    code = recipient_code(visit.context.code_key, team.id, address, now)
    name = without_addresses(team.name).replace('"', "'")[:NAME_MAX]
    called = f' They call themselves "{name}".' if name else ""
    await platform_mail.send(
        visit.store,
        visit.context.handover,
        team.id,
        address,
        OwnMail(
            subject=f"{brand}: confirm that you want test messages",
            said=f"A team that uses {brand} would like to send test messages to {address}.{called}",
            todo="If you want them, give the team this code:",
            code=code,
            end="If not, do nothing: there will be no other mail.",
        ),
    )
    return {}
