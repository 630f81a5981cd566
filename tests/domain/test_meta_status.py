"""WhatsApp templates at Meta: what news change, whose they are, and which sends they refuse (contract 17)."""

from typing import Any

import pytest

from heliograph.domain.refusals import TemplateUnavailable
from heliograph.domain.setup.records import LocaleParts, Team, TeamRecord, Template, UpstreamTemplate
from heliograph.templates.policy.locales import in_locale
from heliograph.templates.policy.meta_status import UpstreamNews, after, check_available, known_of, named_by

GERMAN = LocaleParts(body="Paket", language="de", upstream_name="paket")
PARCEL = Template(id="tpl_1", team="team_a", channel="whatsapp", name="parcel", locales={"de": GERMAN})
TEXT = Template(id="tpl_2", team="team_a", channel="sms", name="parcel")


def team_of(*known: UpstreamTemplate) -> Team:
    return Team(
        record=TeamRecord(ref=1, id="team_a", name="A"),
        templates={one.id: one for one in (PARCEL, TEXT)},
        upstream={(one.name, one.language): one for one in known},
    )


def known(name: str = "parcel", language: str = "en", **more: Any) -> UpstreamTemplate:
    return UpstreamTemplate(team="team_a", name=name, language=language, **more)


def news(name: str = "parcel", language: str = "en", at: int = 10, **more: Any) -> UpstreamNews:
    return UpstreamNews(name=name, language=language, at=at, **more)


@pytest.mark.parametrize(
    ("before", "told", "then"),
    [
        (None, news(status="paused", reason="FIRST_PAUSE"), ("paused", "FIRST_PAUSE", "")),
        (None, news(status="approved"), ("approved", "", "")),
        (None, news(quality="red"), ("approved", "", "red")),
        (known(status="paused", at=9), news(status="approved"), ("approved", "", "")),
        (known(status="paused", at=10), news(status="disabled"), ("disabled", "", "")),
        (known(status="paused", at=9), news(quality="red"), ("paused", "", "red")),
        (known(quality="red", quality_at=99), news(status="paused"), ("paused", "", "red")),
        (known(status="paused", reason="X", at=9), news(status="paused", reason="X"), None),  # again
        (known(status="paused", at=11), news(status="approved"), None),  # late
        (known(quality="red", quality_at=11), news(quality="green"), None),
    ],
)
def test_what_news_change(before: UpstreamTemplate | None, told: UpstreamNews, then: Any) -> None:
    new = after(told, team_of(*([before] if before else [])))
    assert (new and (new.status, new.reason, new.quality)) == then


@pytest.mark.parametrize(
    ("told", "whose"),
    [(news(), ["tpl_1"]), (news("paket", "de"), ["tpl_1"]), (news("paket"), []), (news("parcel", "fr"), [])],
)
def test_whose_a_name_is(told: UpstreamNews, whose: list[str]) -> None:
    assert [one.id for one in named_by(team_of(), told)] == whose


@pytest.mark.parametrize(
    ("status", "refused"),
    [("approved", False), ("pending", False), ("rejected", True), ("paused", True), ("disabled", True)],
)
def test_what_is_refused(status: Any, refused: bool) -> None:
    team = team_of(known(status=status, reason="SCAM"))
    check_available(team, TEXT)
    check_available(team, in_locale(PARCEL, "de"))
    if not refused:
        check_available(team, PARCEL)
        return
    with pytest.raises(TemplateUnavailable) as caught:
        check_available(team, PARCEL)
    assert status in str(caught.value) and "SCAM" in str(caught.value)
    assert caught.value.details == {"upstream_status": status, "upstream_reason": "SCAM"}


def test_a_language_of_its_own() -> None:
    team = team_of(known("paket", "de", status="paused"))
    check_available(team, PARCEL)
    with pytest.raises(TemplateUnavailable):
        check_available(team, in_locale(PARCEL, "de-AT"))
    assert [one.language for one in known_of(team, PARCEL)] == ["de"]
