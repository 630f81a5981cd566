"""One sending domain: adding, required DNS records and their check results, DKIM keys and brand."""

from collections.abc import Mapping

import msgspec

from heliograph.dashboard.live import Watch
from heliograph.dashboard.page_request import Answer, Download, Gone, Page, Redirect, Visit, errors_of
from heliograph.dashboard.views.live import stream, stream_address, watch
from heliograph.dashboard.views.senders import own_domain
from heliograph.domain.limits import MINUTE_MS, SECOND_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.domain_records import Record
from heliograph.domain.setup.records import Domain
from heliograph.domain.setup.sender_approvals import state_of
from heliograph.domain.setup.zone_file import (
    is_public,
    mx_parts,
    quoted_strings,
    strings,
    within,
    zone_file,
    zones,
)
from heliograph.manage import platform
from heliograph.manage.domains import Domains, LookedUp
from heliograph.storage.domain_checks import KeptVerdict
from heliograph.texts.dashboard_links import of_instance

PURPOSES = {
    "ownership": "Proves that the domain is yours",
    "dkim": "Signs your mail (DKIM)",
    "return_path": "Takes bounces (return path)",
    "spf": "Lets this service send (SPF)",
    "dmarc": "Tells receivers what to do with forgeries (DMARC)",
}
PLATFORM = of_instance("domain")


class RecordLine(msgspec.Struct, frozen=True, kw_only=True):
    """A DNS record as a row of the table."""

    record: Record
    name: str  # relative to the zone
    priority: str  # priority of an MX record
    value: str
    split: str  # value as quoted strings; empty if one string is enough
    parts: int
    kept: KeptVerdict | None

    @property
    def state(self) -> tuple[str, str]:
        """Return the state and its label on this page."""
        if self.kept is None:
            return "checking", "Not checked yet"
        verdict = self.kept.verdict
        if verdict.ok:
            return "verified", "Found"
        if not verdict.answered:
            return "waiting", "No answer"
        return ("failed", "Not right") if verdict.found else ("unverified", "Missing")

    @property
    def mend(self) -> str:
        """Return how to fix a wrong record; the table shows the expected value above."""
        if self.kept is None or (self.kept.verdict.answered and not self.kept.verdict.found):
            return ""
        mend = self.kept.verdict.fix
        for before, after in ((" with the value: ", " with the value above."), (" to: ", " to the value above.")):
            mend = mend.replace(before + self.record.value, after)
        return mend


# -- adding, checking, changing -------------------------------------------------------------------------------------


async def new(visit: Visit, **errors: str) -> Page:
    values = {"errors": errors, "typed": visit.form, "team": visit.team.record}
    return Page("domain_new.html", values, 400 if errors else 200)


async def add(visit: Visit) -> Answer:
    typed, brand = visit.form.get("domain", "").strip(), visit.form.get("brand", "").strip()
    try:
        made = await _domains(visit).add(visit.actor, visit.team.record.id, typed, brand)
    except InvalidRequest as refusal:
        errors = errors_of(refusal)
        return await new(visit, **{"domain" if field == "name" else field: why for field, why in errors.items()})
    known, name = made.name in visit.team.domains, made.name
    told = f"You have {name} already." if known else f"{name} is added. Now set its DNS records."
    return Redirect(_here(visit, made), told)


async def show(visit: Visit) -> Answer:
    return await _page(visit, await _domain(visit))


async def live(visit: Visit) -> Answer:
    return stream(visit, _watch(visit, await _domain(visit)))


async def check(visit: Visit) -> Answer:
    domain = await _domain(visit)
    done = await _domains(visit).check(visit.actor, domain.id)
    right, all_ = sum(verdict.ok for _, verdict in done.records), len(done.records)
    told = f"All {all_} records are right." if right == all_ else f"{right} of {all_} records are right."
    return Redirect(_here(visit, domain), told)


async def zone(visit: Visit) -> Answer:
    """Return the records as a zone file, for import at the DNS provider."""
    domain = await _domain(visit)
    if not _domains(visit).is_public:
        raise Gone("There are no records to download before this service has a public name.")
    looked = await _domains(visit).looked_up(domain.id)
    text = zone_file(domain.name, _zone(visit, domain, looked), [record for record, _ in looked.records])
    return Download(text.encode(), "text/dns; charset=utf-8", f"{domain.name}.zone")


async def rotate(visit: Visit) -> Answer:
    domain = await _domain(visit)
    await _domains(visit).rotate(visit.actor, domain.id)
    told = "Two new keys are made. Set their records: the old keys sign until both are found."
    return Redirect(_here(visit, domain), told)


async def set_brand(visit: Visit) -> Answer:
    domain, brand, operator = own_domain(visit), visit.form.get("brand", "").strip(), visit.may("operator")
    try:
        await _domains(visit).set_brand(visit.actor, domain, brand, by_operator=operator)
    except InvalidRequest as refusal:
        return await _page(visit, domain, errors=errors_of(refusal))
    if domain.approved and not operator and brand != domain.brand:
        told = f"{brand} waits for the operator's approval. Until then mail is sent as {domain.brand}."
        return Redirect(_here(visit, domain), told)
    return Redirect(_here(visit, domain), f"Mail from {domain.name} is sent as {brand}.")


async def remove(visit: Visit) -> Answer:
    domain = own_domain(visit)
    try:
        await _domains(visit).remove(visit.actor, domain)
    except InvalidRequest as refusal:
        return Redirect(_here(visit, domain), refusal.message)
    return Redirect(f"{visit.base}/senders", f"{domain.name} is removed.")


async def set_mail_host(visit: Visit) -> Answer:
    """Set the public host name that the DNS records of all domains refer to."""
    host = visit.form.get("mail_host", "").strip().lower().removesuffix(".")
    back = visit.form.get("back", "")
    there = back if back.startswith("/dashboard/") and back.isprintable() else PLATFORM
    if not is_public(host):
        return Redirect(there, f"“{host}” is not a public host name, such as mail.example.com.")
    try:
        await platform.change(visit.store, visit.actor, {"mail_host": host})
    except InvalidRequest as refusal:
        return Redirect(there, "; ".join(errors_of(refusal).values()))
    return Redirect(there, f"DNS records now name {host}.")


# -- pages ------------------------------------------------------------------------------------------------------------


def _domains(visit: Visit) -> Domains:
    return visit.tools.management.domains


async def _domain(visit: Visit) -> Domain:
    """Return the team's domain; on the operator's page, the domain of the platform's sender.

    If a team has verified the platform's domain, its domain is returned.
    """
    if visit.team_found:
        return own_domain(visit)
    await _domains(visit).ensure_keys(_domains(visit).platform_name)
    return _domains(visit).find(_domains(visit).platform_name)


def _here(visit: Visit, domain: Domain) -> str:
    return f"{visit.base}/senders/domains/{domain.id}" if visit.team_found else PLATFORM


def _watch(visit: Visit, domain: Domain) -> Watch:
    async def words() -> dict[str, str]:
        kept = await visit.store.domain_checks.get(domain.id)
        return {"looked": f"{kept.checked_at}-{kept.next_at}"}

    return watch(visit, "domain", domain.id, words, ("looked", "setup"))


def _zone(visit: Visit, domain: Domain, looked: LookedUp) -> str:
    """Return the DNS zone that the user selected, otherwise the detected zone."""
    wanted = visit.query.get("zone", "")
    return wanted if wanted in zones(domain.name) else looked.zone


def _lines(looked: LookedUp, zone: str) -> list[RecordLine]:
    found = []
    for record, kept in looked.records:
        priority, value = mx_parts(record.value) if record.type == "MX" else ("", record.value)
        parts = len(strings(value)) if record.type == "TXT" else 1
        found.append(
            RecordLine(
                record=record,
                name=within(record.name, zone),
                priority=priority,
                value=value,
                split=quoted_strings(value) if parts > 1 else "",
                parts=parts,
                kept=kept,
            )
        )
    return found


def _silence(lines: list[RecordLine]) -> str:
    """Return why no record could be looked up; empty if a lookup was answered or a record was not checked yet."""
    verdicts = [line.kept.verdict for line in lines if line.kept]
    if not verdicts or len(verdicts) < len(lines) or any(verdict.answered for verdict in verdicts):
        return ""
    return verdicts[0].fix.rstrip(".")


def _every(looked: LookedUp) -> str:
    """Return the current interval of DNS checks as text; empty if no frequent checks are scheduled."""
    if not looked.is_watched or not looked.next_at or not looked.checked_at:
        return ""
    ms = looked.next_at - looked.checked_at
    if ms < MINUTE_MS:
        return f"{max(1, ms // SECOND_MS)} seconds"
    return "minute" if ms < 2 * MINUTE_MS else f"{ms // MINUTE_MS} minutes"


async def _page(visit: Visit, domain: Domain, errors: Mapping[str, str] = {}) -> Page:
    here = _here(visit, domain)
    followed = await stream_address(visit, f"{here}/live", _watch(visit, domain))
    looked = await _domains(visit).looked_up(domain.id)
    zone = _zone(visit, domain, looked)
    lines = _lines(looked, zone)
    values = {
        "live": followed,
        "domain": domain,
        "here": here,
        "mail_host": _domains(visit).mail_host,
        "is_public": _domains(visit).is_public,
        "looked": looked,
        "every": _every(looked),
        "lines": lines,
        "silence": _silence(lines),
        "zone": zone,
        "zones": zones(domain.name),
        "purposes": PURPOSES,
        "rotating": any(key.state == "pending" for key in visit.setup.keys_of(domain)),
        "state": state_of(domain),
        "errors": errors,
        "brand": visit.form.get("brand", domain.wanted or domain.brand),
    }
    return Page("domain.html", values, 400 if errors else 200)
