"""One sending domain: the records to set, whether they are there, its keys and its brand."""

from collections.abc import Mapping

from heliograph.dashboard.views.senders import ONE_LINE, is_line, own_domain
from heliograph.dashboard.visit import Answer, Page, Redirect, Visit
from heliograph.manage.domains import Checked
from heliograph.rules.setup.domain_records import Record, Verdict
from heliograph.rules.setup.records import Domain
from heliograph.rules.setup.sender_approvals import state_of, wish
from heliograph.rules.setup.snapshot import Setup, to_row
from heliograph.storage.setup import SetupChange

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
    done = await visit.tools.management.domains.check(domain.id)
    if done.domain.verified != domain.verified:
        await visit.note("domain.verified" if done.domain.verified else "domain.failed", domain.name)
    return await _page(visit, done.domain, done=done)


async def rotate(visit: Visit) -> Answer:
    domain = await _domain(visit)
    await visit.tools.management.domains.rotate(domain.id)
    await visit.note("domain.rotate", domain.name)
    return Redirect(_here(visit, domain), "Two new keys wait for their records. The old ones sign until then.")


async def set_brand(visit: Visit) -> Answer:
    domain, brand = own_domain(visit), visit.form.get("brand", "").strip()
    if not is_line(brand):
        return await _page(visit, domain, errors={"brand": ONE_LINE})

    place, operator = ("domain", domain.id), visit.may("operator")

    def change(setup: Setup) -> SetupChange:
        return SetupChange(rows=wish(setup, place, brand, operator=operator) if place in setup.records else ())

    await visit.change_setup("domain.brand", domain.name, change, f"{domain.brand} → {brand}")
    if own_domain(visit).approved and not operator and brand != domain.brand:
        told = f"{brand} waits for the operator's approval. Until then mail is sent as {domain.brand}."
        return Redirect(_here(visit, domain), told)
    return Redirect(_here(visit, domain), f"Mail from {domain.name} is sent as {brand}.")


async def remove(visit: Visit) -> Answer:
    """One that may send is kept: mail under way is signed with its keys."""
    domain = own_domain(visit)

    def change(setup: Setup) -> SetupChange:
        team = setup.teams[domain.team]
        if team.domains[domain.name].usable:
            return SetupChange()
        ids = [("domain", domain.id), *(("dkim_key", key.id) for key in team.dkim_keys if key.domain == domain.id)]
        ids += [("display_name", name.id) for name in team.display_names.values() if name.domain == domain.id]
        return SetupChange(rows=[to_row(kind, id_, None, domain.team) for kind, id_ in ids])

    if not (await visit.change_setup("domain.remove", domain.name, change)).rows:
        return Redirect(_here(visit, domain), "This domain may send. Ask the operator to take its approval back first.")
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
