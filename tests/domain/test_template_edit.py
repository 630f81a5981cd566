"""Saving templates: what is published at once, what waits for an operator, and which price applies."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.domain.refusals import InvalidRequest
from heliograph.domain.setup.records import Platform, TeamRecord, Template
from heliograph.domain.setup.snapshot import PLATFORM_ID, Row, Setup, apply_rows, to_row
from heliograph.templates.policy import template_approvals as approvals
from heliograph.templates.policy.check import find_template
from heliograph.templates.policy.template_edit import (
    DRAFT_VERSION,
    LINES_MAX,
    _compare_lines,
    apply_and_check,
    compare,
    sandbox_with_draft,
    save_rows,
    with_suggested_prices,
)

SMS = Template(id="tpl_a", team="team_a", channel="sms", name="A", body="one", price=45, prices={"GB": 35})
NEW = Template(id="tpl_b", team="team_a", channel="sms", name="B", body="two")


def setup_with(*templates: Template, need: bool = False) -> Setup:
    rows = [
        to_row("platform", PLATFORM_ID, Platform(templates_need_approval=need), None),
        to_row("team", "team_a", TeamRecord(ref=1, id="team_a", name="A"), "team_a"),
        *(to_row("template", item.id, item, item.team) for item in templates),
    ]
    return apply_rows(Setup(), rows, 1)


def apply(setup: Setup, rows: list[Row]) -> Setup:
    return apply_rows(setup, rows, setup.version + 1)


def save(setup: Setup, new: Template, operator: bool = False) -> Setup:
    return apply(setup, save_rows(setup, new, by_operator=operator, author="usr_a", saved_at=7))


def test_without_approval_a_change_is_the_next_version() -> None:
    result = save(setup_with(SMS), replace(SMS, body="other", price=0, prices={}))
    assert result.teams["team_a"].templates == {"tpl_a": replace(SMS, body="other", version=2)}
    assert approvals.list_pending(result) == []
    assert (
        save_rows(result, result.teams["team_a"].templates["tpl_a"], by_operator=False, author="usr_a", saved_at=7)
        == []
    )


def test_with_approval_the_old_version_stays_in_use() -> None:
    result = save(setup_with(SMS, need=True), replace(SMS, body="other"))
    assert result.teams["team_a"].templates == {"tpl_a": SMS}
    (draft,) = approvals.list_pending(result)
    assert (draft.template.body, draft.template.version, draft.current, draft.author) == ("other", 2, SMS, "usr_a")
    approved = apply(result, approvals.approve_rows(result, "tpl_a", draft.revision))
    assert approved.teams["team_a"].templates["tpl_a"] == replace(SMS, body="other", version=2)
    assert approvals.find_draft(approved, "tpl_a") is None


def test_only_the_reviewed_revision_is_approved() -> None:
    observed = save(setup_with(SMS, need=True), replace(SMS, body="other"))
    changed = save(observed, replace(SMS, body="worse"))
    (draft,) = approvals.list_pending(observed)
    with pytest.raises(InvalidRequest):
        approvals.approve_rows(changed, "tpl_a", draft.revision)


def test_a_refused_draft_waits_for_its_team_until_it_is_saved_again() -> None:
    result = save(setup_with(SMS, need=True), replace(SMS, body="other"))
    (draft,) = approvals.list_pending(result)
    error = apply(result, approvals.refuse_rows(result, "tpl_a", draft.revision, "too long"))
    assert approvals.list_pending(error) == []
    remaining = approvals.find_draft(error, "tpl_a")
    assert remaining
    assert remaining.template.refused_reason == "too long"
    assert [item.template.body for item in approvals.list_pending(save(error, remaining.template))] == ["other"]
    dropped = apply(error, approvals.discard_rows(error, "tpl_a"))
    assert approvals.find_draft(dropped, "tpl_a") is None
    assert dropped.teams["team_a"].templates == {"tpl_a": SMS}


@pytest.mark.parametrize(
    ("others", "new", "status", "price"),
    [
        ([SMS], NEW, "approved", 45),
        ([SMS, replace(SMS, id="tpl_c", price=90)], replace(NEW, price=1), "approved", 90),
        ([], NEW, "draft", 0),  # it has no price yet
        ([replace(SMS, status="draft")], NEW, "draft", 0),
        ([SMS], replace(NEW, channel="whatsapp", category="UTILITY"), "draft", 0),
        ([], replace(NEW, channel="email", subject="s", text="t", body=None, price=1), "approved", 0),
        ([replace(NEW, status="draft")], replace(NEW, status="draft", body="again"), "draft", 0),
        ([replace(SMS, price=0)], NEW, "draft", 0),  # the other template is free, not this one
    ],
)
def test_a_team_does_not_set_its_prices(others: list[Template], new: Template, status: str, price: int) -> None:
    created = save(setup_with(*others), new).teams["team_a"].templates["tpl_b"]
    assert (created.status, created.price) == (status, price)


def test_an_operator_sets_prices_and_approves_by_saving() -> None:
    result = save(setup_with(replace(NEW, status="draft"), need=True), replace(NEW, price=5), operator=True)
    assert result.teams["team_a"].templates["tpl_b"] == replace(NEW, price=5)


@pytest.mark.parametrize(
    ("price", "prices", "free", "is_approved"),
    [
        (5, {}, False, True),
        (5, {"GB": 3}, False, True),
        (0, {}, False, False),
        (0, {"GB": 3}, False, False),
        (5, {"GB": 0}, False, False),
        (0, {}, True, True),
        (5, {"GB": 0}, True, True),
    ],
)
@pytest.mark.parametrize("channel", ["sms", "whatsapp"])
def test_phone_template_needs_a_price_or_confirmation_that_it_is_free(
    channel: Any, price: int, prices: dict[str, int], free: bool, is_approved: bool
) -> None:
    draft = replace(NEW, channel=channel, category="UTILITY", status="draft")
    setup = setup_with(draft)
    ways: tuple[Callable[[], Any], ...] = (
        lambda: approvals.approve_rows(
            setup, "tpl_b", approvals.revision_of(draft), price=price, prices=prices, free=free
        ),
        lambda: save_rows(
            setup, replace(draft, price=price, prices=prices), by_operator=True, author="usr_a", saved_at=7, free=free
        ),
    )
    for do in ways:
        if is_approved:
            created = apply(setup, do()).teams["team_a"].templates["tpl_b"]
            assert (created.status, created.price, created.prices) == ("approved", price, prices)
        else:
            with pytest.raises(InvalidRequest) as error:
                do()
            assert error.value.param == "price"


def test_free_template_edit_stays_free_without_confirmation() -> None:
    free = replace(SMS, price=0, prices={})
    for operator in (True, False):
        result = save(setup_with(free), replace(free, body="other"), operator=operator)
        assert result.teams["team_a"].templates["tpl_a"] == replace(free, body="other", version=2)


LIST: Any = {"sms": {"USD": {"*": 50, "GB": 35}, "EUR": {"*": 1}}}


@pytest.mark.parametrize(
    ("others", "prices", "expected"),
    [
        ([], LIST, (50, {"GB": 35})),
        ([], {}, (0, {})),
        ([], {"whatsapp": LIST["sms"]}, (0, {})),
        ([SMS], LIST, (45, {"GB": 35})),  # price of the same kind
        ([replace(SMS, price=0)], LIST, (50, {"GB": 35})),
        ([replace(NEW, status="draft", price=7)], LIST, (7, {})),
        ([replace(NEW, price=0)], LIST, (0, {})),  # its own current price
    ],
)
def test_suggested_prices_come_from_the_template_a_similar_one_or_the_price_list(
    others: list[Template], prices: Any, expected: Any
) -> None:
    setup = setup_with(*others)
    setup = apply(setup, [to_row("platform", PLATFORM_ID, Platform(prices=prices), None)])
    displayed = with_suggested_prices(setup, replace(NEW, price=next((t.price for t in others if t.id == NEW.id), 0)))
    assert (displayed.price, displayed.prices) == expected


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": ""}, "name"),
        ({"body": None}, "body"),
        ({"body": "{{customer.x}}"}, "body"),
        ({"body": "x" * 4097}, "body"),
        ({"variables": ["A"]}, "variables"),
        ({"variables": [f"v{i}" for i in range(101)]}, "variables"),
        ({"examples": {"a": "x" * 4097}}, "examples"),
        ({"price": "free"}, "price"),
        ({"prices": {"Britain": "1"}}, "prices"),
        ({"language": "?"}, "language"),
    ],
)
def test_template_edit_error_names_its_field(given: dict[str, Any], field: str) -> None:
    assert list(apply_and_check(SMS, given)[1]) == [field]


def test_a_draft_is_tried_in_a_sandbox() -> None:
    mail = Template(id="tpl_m", team="team_a", channel="email", name="M", subject="Hi", text="old", price=7)
    setup = save(setup_with(mail, SMS, need=True), replace(mail, text="new"))
    draft = approvals.find_draft(setup, "tpl_m")
    assert draft
    result = sandbox_with_draft(
        replace(draft, team=replace(draft.team, record=replace(draft.team.record, mode="live")))
    )
    new = find_template(result, "tpl_m", "email")
    assert (new.subject, new.text, new.version) == ("[Test] Hi", "new", DRAFT_VERSION)
    assert (result.sandbox, result.templates["tpl_a"]) == (True, SMS)
    assert setup.teams["team_a"].templates["tpl_m"] == mail, "what is in use stays as it is"


def test_template_comparison_lists_differences_by_line() -> None:
    old = replace(SMS, body="same\nold")
    result = compare(old, replace(old, body="same\nnew", price=50_000))
    assert [(item.field, item.lines) for item in result] == [
        ("body", [(" ", "same"), ("-", "old"), ("+", "new")]),
        ("price", [("-", "0.000045"), ("+", "0.05")]),
    ]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("a b c", "a x c", " a -b +x  c"),
        ("a b c", "b c a", "-a  b  c +a"),
        ("a a a", "a a", " a  a -a"),
        ("", "a b", "+a +b"),
        ("a b", "", "-a -b"),
        ("1 2 3 4 5 6 7 8 9", "1 2 3 4 x 6 7 8 9", " 2  3  4 -5 +x  6  7  8"),
        ("h t b t e", "h t b2 t new t e", " h  t -b +b2 +t +new  t  e"),
    ],
)
def test_comparison_lists_removed_and_added_lines(before: str, after: str, shown: str) -> None:
    old = replace(SMS, body="\n".join(before.split()))
    result = compare(old, replace(old, body="\n".join(after.split())))
    assert " ".join(sign + line for sign, line in result[0].lines) == shown


def test_a_comparison_can_be_undone_and_is_bounded() -> None:
    rolls = random.Random(7)
    for _ in range(200):
        previous, after = (rolls.choices("abcdef", k=rolls.randint(0, 12)) for _ in range(2))
        lines = list(_compare_lines(previous, after))
        assert [line for sign, line in lines if sign != "+"] == previous
        assert [line for sign, line in lines if sign != "-"] == after
    old = replace(SMS, body="a\n" * 5000)
    assert len(compare(old, replace(old, body="b\n" * 5000))[0].lines) == LINES_MAX + 1
