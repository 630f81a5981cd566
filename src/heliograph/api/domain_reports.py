"""Endpoint for the DMARC and TLS results that receivers report on a sending domain (scope `manage`)."""

from heliograph.api.call import Call
from heliograph.inbound.aggregate_report_service import read_domain_reports
from heliograph.inbound.policy.domain_reports import DEFAULT_DAYS
from heliograph.web.request import Response
from heliograph.web.route import QueryParam, json_response

DAY_SCHEMA = {"type": "string", "format": "date"}
QUERY = (
    QueryParam("from", f"First day, UTC. Default: {DEFAULT_DAYS} days in all.", DAY_SCHEMA),
    QueryParam("to", "Last day, UTC, inclusive. Default: today.", DAY_SCHEMA),
)


async def read(call: Call) -> Response:
    query = call.query()
    domain = call.management.domains.get_of_team(call.team_id, call.params["id"])
    return json_response(await read_domain_reports(call.context.store, domain, query.get("from"), query.get("to")))
