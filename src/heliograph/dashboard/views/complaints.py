"""Complaints by provider, team and template, compared with the limits of mailbox providers."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

import msgspec

from heliograph.dashboard.charts import format_percent
from heliograph.dashboard.page_request import Page, PageRequest, PageResponse
from heliograph.domain.mail.feedback_id import DIRECT
from heliograph.domain.setup.snapshot import Setup
from heliograph.storage.complaint_rates import ComplaintRate

DAYS = 30
# complaints per 1,000 emails: Google and Yahoo ask senders to stay below the first, and reject mail above the second
WARNING_PER_MILLE, LIMIT_PER_MILLE = 1, 3
FULL_SCALE_PER_MILLE = 5
ROWS_MAX = 100
OTHER_NAME = {"other": "Other"}


class RateRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    team: str = ""  # name of the team; only in the table of templates
    link: str = ""
    sends: int
    complaints: int

    @property
    def width(self) -> float:
        """Return the length of the bar, in percent of the full scale."""
        return min(100.0, 100_000 * self.complaints / FULL_SCALE_PER_MILLE / self.sends) if self.sends else 0.0

    @property
    def state(self) -> str:
        if 1000 * self.complaints >= LIMIT_PER_MILLE * self.sends and self.complaints:
            return "bad"
        return "warn" if 1000 * self.complaints >= WARNING_PER_MILLE * self.sends and self.complaints else "ok"


async def show(request: PageRequest) -> PageResponse:
    rates = await request.store.complaint_rates.read(DAYS)
    setup = request.setup
    tables = [
        (
            "Mailbox providers",
            _total_by_key(
                rates, lambda rate: rate.provider, lambda rate: {"name": OTHER_NAME.get(rate.provider, rate.provider)}
            ),
        ),
        ("Teams", _total_by_key(rates, lambda rate: rate.team, lambda rate: _team_fields(setup, rate))),
        (
            "Templates and categories",
            _total_by_key(rates, lambda rate: (rate.team, rate.source), lambda rate: _source_fields(setup, rate)),
        ),
    ]
    lines = [100 * limit / FULL_SCALE_PER_MILLE for limit in (WARNING_PER_MILLE, LIMIT_PER_MILLE)]
    return Page(
        "complaints.html",
        {
            "tables": tables,
            "lines": lines,
            "days": DAYS,
            "is_empty": not rates,
            "total": RateRow(
                name="", sends=sum(rate.sends for rate in rates), complaints=sum(rate.complaints for rate in rates)
            ),
            "percent": format_percent,
        },
    )


def _total_by_key(
    rates: Iterable[ComplaintRate],
    key_of: Callable[[ComplaintRate], Hashable],
    fields_of: Callable[[ComplaintRate], dict[str, str]],
) -> list[RateRow]:
    """Return a row with the totals for each key, those with most complaints per email first."""
    groups = defaultdict[Hashable, list[ComplaintRate]](list)
    for rate in rates:
        groups[key_of(rate)].append(rate)
    rows = [
        RateRow(
            **fields_of(group[0]),
            sends=sum(rate.sends for rate in group),
            complaints=sum(rate.complaints for rate in group),
        )
        for group in groups.values()
    ]
    return sorted(rows, key=lambda row: (-row.width, -row.complaints, -row.sends, row.name))[:ROWS_MAX]


def _team_fields(setup: Setup, rate: ComplaintRate) -> dict[str, str]:
    team = setup.teams_by_ref.get(rate.team)
    if team is None:
        return {"name": "Deleted team"}
    return {"name": team.record.name, "link": f"/dashboard/operator/teams/{team.record.id}"}


def _source_fields(setup: Setup, rate: ComplaintRate) -> dict[str, str]:
    team = setup.teams_by_ref.get(rate.team)
    template = team.templates.get(rate.source) if team else None
    name = template.name if template else "Direct email" if rate.source == DIRECT else rate.source
    link = f"/dashboard/teams/{template.team}/templates/{template.id}" if template else ""
    return {"name": name, "link": link, "team": _team_fields(setup, rate)["name"]}
