"""A sending domain: adding it, its DNS records and their check results, DKIM keys and brand."""

from collections.abc import Mapping

import msgspec

from heliograph.dashboard.live import Subscription
from heliograph.dashboard.page_request import (
    Download,
    Page,
    PageNotFound,
    PageRequest,
    PageResponse,
    Redirect,
    field_errors,
)
from heliograph.dashboard.views.live import make_subscription, open_stream, stream_url
from heliograph.dashboard.views.senders import find_domain
from heliograph.domain.limits import MINUTE_MS, SECOND_MS
from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.domain_records import Record
from heliograph.domain.setup.records import DkimMethod, Domain
from heliograph.domain.setup.sender_approvals import state_of
from heliograph.domain.setup.zone_file import (
    candidate_zones,
    is_public,
    mx_parts,
    quoted_strings,
    relative_name,
    split_txt,
    zone_file,
)
from heliograph.manage import platform
from heliograph.manage.domains import Domains, DomainStatus
from heliograph.storage.domain_checks import StoredVerdict
from heliograph.texts.dashboard_links import operator_page

PURPOSE_TEXTS = {
    "ownership": "Domain ownership",
    "dkim": "Email signature (DKIM)",
    "return_path": "Bounces (return path)",
    "spf": "Allowed senders (SPF)",
    "dmarc": "Policy for forged email (DMARC)",
    "tls_reports": "Reports about encryption (optional)",
}
PLATFORM_DOMAIN_URL = operator_page("domain")


class RecordRow(msgspec.Struct, frozen=True, kw_only=True):
    record: Record
    name: str  # relative to the zone
    priority: str  # priority of an MX record; empty for other types
    value: str
    quoted_value: str  # the value as several quoted strings; empty if one is enough
    string_count: int
    last_check: StoredVerdict | None

    @property
    def state(self) -> tuple[str, str]:
        """Return the record's state, and its label on this page."""
        if self.last_check is None:
            return "checking", "Not checked yet"
        verdict = self.last_check.verdict
        if verdict.ok:
            return "verified", "Found"
        if not verdict.answered:
            return "waiting", "Lookup failed"
        if not self.record.is_required and not verdict.found:
            return "waiting", "Not set"
        return ("failed", "Incorrect") if verdict.found else ("unverified", "Missing")

    @property
    def fix(self) -> str:
        """Return how to fix a wrong record, whose expected value is above it in the table."""
        if self.last_check is None or (self.last_check.verdict.answered and not self.last_check.verdict.found):
            return ""
        fix = self.last_check.verdict.fix
        for before, after in ((" with the value: ", " with the value above."), (" to: ", " to the value above.")):
            fix = fix.replace(before + self.record.value, after)
        return fix


# -- adding, checking, changing -------------------------------------------------------------------------------------


async def show_new(request: PageRequest, **errors: str) -> Page:
    values = {
        "errors": errors,
        "typed": request.form,
        "team": request.team.record,
        "dkim_zone": request.setup.platform.dkim_zone,
    }
    return Page("domain_new.html", values, 400 if errors else 200)


async def add(request: PageRequest) -> PageResponse:
    domain_name, brand = request.form.get("domain", "").strip(), request.form.get("brand", "").strip()
    try:
        created = await _domains(request).add(
            request.actor, request.team.record.id, domain_name, brand, method=_dkim_method(request)
        )
    except InvalidRequest as refusal:
        errors = field_errors(refusal)
        return await show_new(
            request, **{"domain" if field == "name" else field: message for field, message in errors.items()}
        )
    is_existing, name = created.name in request.team.domains, created.name
    notice = f"You already have {name}." if is_existing else f"{name} added. Now add its DNS records."
    return Redirect(domain_url(request, created), notice)


async def show(request: PageRequest) -> PageResponse:
    return await _page(request, await find_own_domain(request))


async def live(request: PageRequest) -> PageResponse:
    return open_stream(request, _domain_subscription(request, await find_own_domain(request)))


async def check(request: PageRequest) -> PageResponse:
    domain = await find_own_domain(request)
    result = await _domains(request).check(request.actor, domain.id)
    required_verdicts = [verdict for record, verdict in result.records if record.is_required]
    valid_count, total = sum(verdict.ok for verdict in required_verdicts), len(required_verdicts)
    notice = f"{f'All {total}' if valid_count == total else f'{valid_count} of {total}'} records are correct."
    return Redirect(domain_url(request, domain), notice)


async def zone(request: PageRequest) -> PageResponse:
    """Return the records as a zone file, for import at the DNS provider."""
    domain = await find_own_domain(request)
    if not _domains(request).has_public_mail_host:
        raise PageNotFound("There are no records to download until this server has a public host name.")
    check_results = await _domains(request).status(domain.id)
    text = zone_file(
        domain.name, _selected_zone(request, domain, check_results), [record for record, _ in check_results.records]
    )
    return Download(text.encode(), "text/dns; charset=utf-8", f"{domain.name}.zone")


async def rotate(request: PageRequest) -> PageResponse:
    domain = await find_own_domain(request)
    try:
        await _domains(request).rotate(request.actor, domain.id)
    except InvalidRequest as refusal:
        return Redirect(domain_url(request, domain), refusal.message)
    notice = "Two new keys created. Add their DNS records: the old keys are used until both are found."
    if domain.dkim == "cname":
        notice = "Two new keys created. They are used once our DNS zone has them; your records stay the same."
    return Redirect(domain_url(request, domain), notice)


async def set_dkim(request: PageRequest) -> PageResponse:
    """Change how the domain's keys are published: by CNAME or by TXT records."""
    domain, method = find_domain(request), _dkim_method(request)
    try:
        await _domains(request).add(request.actor, request.team.record.id, domain.name, method=method)
    except InvalidRequest as refusal:
        return Redirect(domain_url(request, domain), refusal.message)
    notice = "Add the new DNS records. The old keys are used until the new ones are found."
    return Redirect(domain_url(request, domain), notice)


def _dkim_method(request: PageRequest) -> DkimMethod | None:
    method = request.form.get("dkim", "")
    return "cname" if method == "cname" else "txt" if method == "txt" else None


async def set_brand(request: PageRequest) -> PageResponse:
    domain, brand = find_domain(request), request.form.get("brand", "").strip()
    is_operator = request.has_role("operator")
    try:
        await _domains(request).set_brand(request.actor, domain, brand, by_operator=is_operator)
    except InvalidRequest as refusal:
        return await _page(request, domain, errors=field_errors(refusal))
    if domain.approved and not is_operator and brand != domain.brand:
        notice = f"{brand} is waiting for approval. Until then, email is sent as {domain.brand}."
        return Redirect(domain_url(request, domain), notice)
    return Redirect(domain_url(request, domain), f"Email from {domain.name} is now sent as {brand}.")


async def remove(request: PageRequest) -> PageResponse:
    domain = find_domain(request)
    try:
        await _domains(request).remove(request.actor, domain)
    except InvalidRequest as refusal:
        return Redirect(domain_url(request, domain), refusal.message)
    return Redirect(f"{request.team_path}/senders", f"{domain.name} deleted.")


async def set_mail_host(request: PageRequest) -> PageResponse:
    """Set the host name to which the DNS records of all domains refer."""
    host = request.form.get("mail_host", "").strip().lower().removesuffix(".")
    return_path = request.form.get("back", "")
    return_url = (
        return_path if return_path.startswith("/dashboard/") and return_path.isprintable() else PLATFORM_DOMAIN_URL
    )
    if not is_public(host):
        return Redirect(return_url, f"“{host}” is not a public host name. Enter one such as mail.example.com.")
    try:
        await platform.change_platform(request.store, request.actor, {"mail_host": host})
    except InvalidRequest as refusal:
        return Redirect(return_url, "; ".join(field_errors(refusal).values()))
    return Redirect(return_url, f"DNS records now use {host}.")


# -- pages ------------------------------------------------------------------------------------------------------------


def _domains(request: PageRequest) -> Domains:
    return request.tools.management.domains


async def find_own_domain(request: PageRequest) -> Domain:
    """Return the team's domain; on an operator page, that of the platform's sender, which may belong to a team."""
    if request.team_or_none:
        return find_domain(request)
    await _domains(request).ensure_keys(_domains(request).platform_domain_name)
    return _domains(request).get(_domains(request).platform_domain_name)


def domain_url(request: PageRequest, domain: Domain) -> str:
    return f"{request.team_path}/senders/domains/{domain.id}" if request.team_or_none else PLATFORM_DOMAIN_URL


def _domain_subscription(request: PageRequest, domain: Domain) -> Subscription:
    async def read_tokens() -> dict[str, str]:
        check_state = await request.store.domain_checks.get(domain.id)
        return {"check_results": f"{check_state.checked_at}-{check_state.next_at}"}

    return make_subscription(request, "domain", domain.id, read_tokens, ("check_results", "setup"))


def _selected_zone(request: PageRequest, domain: Domain, check_results: DomainStatus) -> str:
    """Return the DNS zone that the user selected, otherwise the detected one."""
    zone_param = request.query.get("zone", "")
    return zone_param if zone_param in candidate_zones(domain.name) else check_results.zone


def _record_rows(check_results: DomainStatus, zone: str) -> list[RecordRow]:
    rows = []
    for record, last_check in check_results.records:
        priority, value = mx_parts(record.value) if record.type == "MX" else ("", record.value)
        string_count = len(split_txt(value)) if record.type == "TXT" else 1
        rows.append(
            RecordRow(
                record=record,
                name=relative_name(record.name, zone),
                priority=priority,
                value=value,
                quoted_value=quoted_strings(value) if string_count > 1 else "",
                string_count=string_count,
                last_check=last_check,
            )
        )
    return rows


def _no_answer_reason(rows: list[RecordRow]) -> str:
    """Return why all DNS lookups failed; empty if one was answered, or a record was not checked yet."""
    verdicts = [row.last_check.verdict for row in rows if row.last_check]
    if not verdicts or len(verdicts) < len(rows) or any(verdict.answered for verdict in verdicts):
        return ""
    return verdicts[0].fix.rstrip(".")


def _check_interval(check_results: DomainStatus) -> str:
    """Return the current interval of DNS checks as text; empty if there are no frequent checks."""
    if not check_results.is_checked_often or not check_results.next_check_at or not check_results.checked_at:
        return ""
    interval_ms = check_results.next_check_at - check_results.checked_at
    if interval_ms < MINUTE_MS:
        return f"{max(1, interval_ms // SECOND_MS)} seconds"
    return "minute" if interval_ms < 2 * MINUTE_MS else f"{interval_ms // MINUTE_MS} minutes"


async def _page(request: PageRequest, domain: Domain, errors: Mapping[str, str] = {}) -> Page:
    page_url = domain_url(request, domain)
    live_url = await stream_url(request, f"{page_url}/live", _domain_subscription(request, domain))
    check_results = await _domains(request).status(domain.id)
    zone = _selected_zone(request, domain, check_results)
    rows = _record_rows(check_results, zone)
    values = {
        "live": live_url,
        "domain": domain,
        "here": page_url,
        "mail_host": _domains(request).mail_host,
        "is_public": _domains(request).has_public_mail_host,
        "check_results": check_results,
        "check_interval": _check_interval(check_results),
        "lines": rows,
        "no_answer_reason": _no_answer_reason(rows),
        "zone": zone,
        "zones": candidate_zones(domain.name),
        "purposes": PURPOSE_TEXTS,
        "rotating": any(key.state == "pending" for key in request.setup.dkim_keys(domain)),
        "state": state_of(domain),
        "errors": errors,
        "dkim_zone": request.setup.platform.dkim_zone,
        "brand": request.form.get("brand", domain.wanted or domain.brand),
    }
    return Page("domain.html", values, 400 if errors else 200)
