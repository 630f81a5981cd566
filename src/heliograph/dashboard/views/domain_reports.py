"""DMARC and TLS results that receivers reported for a sending domain in a period."""

from heliograph.dashboard.page_request import Page, PageRequest, PageResponse
from heliograph.dashboard.views.sender_domain import domain_url, find_own_domain
from heliograph.domain.refusals import InvalidRequest
from heliograph.inbound.aggregate_report_service import read_domain_reports


async def show(request: PageRequest) -> PageResponse:
    domain = await find_own_domain(request)
    from_, to = (request.query.get(name) or None for name in ("from", "to"))
    error = ""
    try:
        reports = await read_domain_reports(request.store, domain, from_, to)
    except InvalidRequest as refusal:
        error = refusal.message
        reports = await read_domain_reports(request.store, domain, None, None)
    values = {
        "domain": domain,
        "domain_url": domain_url(request, domain),
        "reports": reports,
        "error": error,
        "mail_host": request.tools.management.domains.mail_host,
    }
    return Page("domain_reports.html", values, 400 if error else 200)
