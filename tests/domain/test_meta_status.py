"""WhatsApp templates at Meta: what an update changes, in which templates, and which sends it refuses (contract 17)."""

from typing import Any

import pytest

from heliograph.domain.refusals import TemplateUnavailable
from heliograph.domain.setup.records import LocaleParts, Team, TeamRecord, Template, UpstreamTemplate
from heliograph.templates.policy.locales import localize
from heliograph.templates.policy.meta_status import (
    UpstreamUpdate,
    apply_update,
    check_available,
    list_statuses,
    templates_of_update,
)

GERMAN = LocaleParts(body="Paket", language="de", upstream_name="paket")
PARCEL = Template(id="tpl_1", team="team_a", channel="whatsapp", name="parcel", locales={"de": GERMAN})
TEXT = Template(id="tpl_2", team="team_a", channel="sms", name="parcel")


def team_of(*upstream: UpstreamTemplate) -> Team:
    return Team(
        record=TeamRecord(ref=1, id="team_a", name="A"),
        templates={template.id: template for template in (PARCEL, TEXT)},
        upstream={(template.name, template.language): template for template in upstream},
    )


def upstream_template(name: str = "parcel", language: str = "en", **overrides: Any) -> UpstreamTemplate:
    return UpstreamTemplate(team="team_a", name=name, language=language, **overrides)


def make_update(name: str = "parcel", language: str = "en", at: int = 10, **overrides: Any) -> UpstreamUpdate:
    return UpstreamUpdate(name=name, language=language, at=at, **overrides)


@pytest.mark.parametrize(
    ("before", "told", "then"),
    [
        (None, make_update(status="paused", reason="FIRST_PAUSE"), ("paused", "FIRST_PAUSE", "")),
        (None, make_update(status="approved"), ("approved", "", "")),
        (None, make_update(quality="red"), ("approved", "", "red")),
        (upstream_template(status="paused", at=9), make_update(status="approved"), ("approved", "", "")),
        (upstream_template(status="paused", at=10), make_update(status="disabled"), ("disabled", "", "")),
        (upstream_template(status="paused", at=9), make_update(quality="red"), ("paused", "", "red")),
        (upstream_template(quality="red", quality_at=99), make_update(status="paused"), ("paused", "", "red")),
        (upstream_template(status="paused", reason="X", at=9), make_update(status="paused", reason="X"), None),  # again
        (upstream_template(status="paused", at=11), make_update(status="approved"), None),  # late
        (upstream_template(quality="red", quality_at=11), make_update(quality="green"), None),
    ],
)
def test_meta_update_changes_the_stored_status(
    before: UpstreamTemplate | None, told: UpstreamUpdate, then: Any
) -> None:
    new = apply_update(told, team_of(*([before] if before else [])))
    assert (new and (new.status, new.reason, new.quality)) == then


@pytest.mark.parametrize(
    ("told", "whose"),
    [
        (make_update(), ["tpl_1"]),
        (make_update("paket", "de"), ["tpl_1"]),
        (make_update("paket"), []),
        (make_update("parcel", "fr"), []),
    ],
)
def test_meta_update_applies_to_the_named_templates(told: UpstreamUpdate, whose: list[str]) -> None:
    assert [item.id for item in templates_of_update(team_of(), told)] == whose


@pytest.mark.parametrize(
    ("status", "refused"),
    [("approved", False), ("pending", False), ("rejected", True), ("paused", True), ("disabled", True)],
)
def test_meta_status_not_approved_refuses_sending(status: Any, refused: bool) -> None:
    team = team_of(upstream_template(status=status, reason="SCAM"))
    check_available(team, TEXT)
    check_available(team, localize(PARCEL, "de"))
    if not refused:
        check_available(team, PARCEL)
        return
    with pytest.raises(TemplateUnavailable) as caught:
        check_available(team, PARCEL)
    assert status in str(caught.value) and "SCAM" in str(caught.value)
    assert caught.value.details == {"upstream_status": status, "upstream_reason": "SCAM"}


def test_meta_status_is_kept_per_language() -> None:
    team = team_of(upstream_template("paket", "de", status="paused"))
    check_available(team, PARCEL)
    with pytest.raises(TemplateUnavailable):
        check_available(team, localize(PARCEL, "de-AT"))
    assert [item.language for item in list_statuses(team, PARCEL)] == ["de"]
