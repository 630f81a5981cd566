"""One sending domain: the records to set, whether they are there, its keys and its brand."""

from collections.abc import Mapping

from heliograph.dashboard.views.senders import own_domain
from heliograph.dashboard.visit import Answer, Page, Redirect, Visit, errors_of
from heliograph.manage.domains import Checked
from heliograph.rules.refusals import InvalidRequest
from heliograph.rules.setup.domain_records import Record, Verdict
from heliograph.rules.setup.records import Domain
from heliograph.rules.setup.sender_approvals import state_of

PURPOSES = {
    "ownership": "Shows that the domain is yours",
    "dkim": "Signs your mail (DKIM)",
    "return_path": "Where bounces come back to (MX)",
    "spf": "Lets us send for you (SPF)",
    "dmarc": "What receivers do with mail that is not yours (DMARC)",
}


PLATFORM = "/dashboard/operator/platform/sender"


async def show(visit: Visit) -> Answer:
    return await _page(visit, await _domain(visit))


async def check(visit: Visit) -> Answer:
    """The verdicts are of this moment and kept nowhere, so this answers them itself."""
    domain = await _domain(visit)
    done = await visit.tools.management.domains.check(visit.actor, domain.id)
    return await _page(visit, done.domain, done=done)


async def rotate(visit: Visit) -> Answer:
    domain = await _domain(visit)
    await visit.tools.management.domains.rotate(visit.actor, domain.id)
    return Redirect(_here(visit, domain), "Two new keys wait for their records. The old ones sign until then.")


async def set_brand(visit: Visit) -> Answer:
    domain, brand, operator = own_domain(visit), visit.form.get("brand", "").strip(), visit.may("operator")
    try:
        await visit.tools.management.domains.set_brand(visit.actor, domain, brand, by_operator=operator)
    except InvalidRequest as refusal:
        return await _page(visit, domain, errors=errors_of(refusal))
    if domain.approved and not operator and brand != domain.brand:
        told = f"{brand} waits for the operator's approval. Until then mail is sent as {domain.brand}."
        return Redirect(_here(visit, domain), told)
    return Redirect(_here(visit, domain), f"Mail from {domain.name} is sent as {brand}.")


async def remove(visit: Visit) -> Answer:
    domain = own_domain(visit)
    try:
        await visit.tools.management.domains.remove(visit.actor, domain)
    except InvalidRequest as refusal:
        return Redirect(_here(visit, domain), refusal.message)
    return Redirect(f"{visit.base}/senders", f"{domain.name} is removed.")


async def _domain(visit: Visit) -> Domain:
    """Of the team; on the operator's page the one of the platform's own sender, or of whoever has proved it theirs."""
    if visit.team_found:
        return own_domain(visit)
    await visit.tools.management.domains.ensure_keys(visit.tools.management.domains.platform_name)
    return visit.tools.management.domains.find(visit.tools.management.domains.platform_name)


def _here(visit: Visit, domain: Domain) -> str:
    return f"{visit.base}/senders/domains/{domain.id}" if visit.team_found else PLATFORM


async def _page(visit: Visit, domain: Domain, done: Checked | None = None, errors: Mapping[str, str] = {}) -> Page:
    judged: list[tuple[Record, Verdict | None]] = list(done.records) if done else []
    if not done:
        judged = [(record, None) for record in await visit.tools.management.domains.records(domain.id)]
    values = {
        "domain": domain,
        "here": _here(visit, domain),
        "records": judged,
        "right": sum(verdict.ok for _, verdict in judged if verdict),
        "purposes": PURPOSES,
        "alignment": done.alignment if done else None,
        "rotating": any(key.state == "pending" for key in visit.setup.keys_of(domain)),
        "state": state_of(domain),
        "errors": errors,
        "brand": visit.form.get("brand", domain.wanted or domain.brand),
    }
    return Page("domain.html", values, 400 if errors else 200)
