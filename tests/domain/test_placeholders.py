"""Short placeholders: what they mean, when they are refused, and that nothing else changes its meaning."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from heliograph.domain.setup.records import Template
from heliograph.templates.policy.check import check_template, placeholder_names
from heliograph.templates.policy.placeholders import complete, cure, known_of
from heliograph.templates.policy.render import render
from heliograph.templates.policy.template_edit import edit_template, read_template
from heliograph.templates.policy.values import Values
from tests.proof.size import drawn

BASE = Template(id="tpl_a", team="team_a", channel="email", name="A", subject="s", text="t")


@pytest.mark.parametrize(
    ("written", "declared", "kept"),
    [
        ("{{order.id}}", [], "{{customer.order.id}}"),
        ("{{ order.id }} {{order.id}}", [], "{{customer.order.id}} {{customer.order.id}}"),
        ("{{code}}", ["code"], "{{customer.code}}"),
        ("{{name}}", ["name"], "{{customer.name}}"),  # what the template has wins over the brand
        ("{{id}}", ["id", "order.id"], "{{customer.id}}"),
        ("{{customer.name}} {{name}}", [], "{{customer.name}} {{customer.name}}"),
        ("{{customer.a}} {{brand.name}}", [], "{{customer.a}} {{brand.name}}"),
        # ambiguous, or no placeholder at all: as it is written
        ("{{name}}", [], "{{name}}"),
        ("{{domain}}", [], "{{domain}}"),
        ("{{id}}", ["order.id"], "{{id}}"),
        ("{{id}} {{order.id}}", [], "{{id}} {{customer.order.id}}"),
        ("{{{code}}}", [], "{{{code}}}"),
        ("{{customer}} {{brand}} {{1}} {{#if a}} {{A}} {{a", [], "{{customer}} {{brand}} {{1}} {{#if a}} {{A}} {{a"),
        ("{{" + "a" * 64 + "}}", [], "{{" + "a" * 64 + "}}"),
        ("{{" + "a." * 120 + "a}}", [], "{{" + "a." * 120 + "a}}"),
    ],
)
def test_a_short_placeholder_is_made_whole_where_it_means_one_thing(
    written: str, declared: list[str], kept: str
) -> None:
    assert complete({"text": written}, declared) == {"text": kept}


@pytest.mark.parametrize(
    ("written", "declared", "told"),
    [
        ("{{name}}", [], "write {{customer.name}} or {{brand.name}}"),
        ("{{id}}", ["order.id", "user.id"], "write {{customer.id}} or {{customer.order.id}} or {{customer.user.id}}"),
        ("{{customer.Name}}", [], "write {{customer.name}}"),
        ("{{firstName}}", [], "write {{customer.first_name}}"),
        ("{{First name}}", [], "write {{customer.first_name}}"),
        ("{{{code}}}", [], "write {{customer.code}}"),
        ("{{brand}}", [], "say which, as in {{brand.name}}"),
        ("{{1}}", [], "write the variable's name, as in {{customer.order.id}}"),
        ("{{#if x}}", [], "write {{#each customer.items}}, {{#if customer.name}}"),
        ("{{name | upper}}", [], "a format is number"),
        ("{{customer.name", [], "close it with }}"),
        ("{{é}}", [], "a name is of a-z"),
        ("{{" + ".".join(["a" * 40] * 6) + "}}", [], "at most 200 characters"),
    ],
)
def test_the_cure(written: str, declared: list[str], told: str) -> None:
    assert told in cure(written, known_of([written], declared))


NAMES = st.lists(st.sampled_from(["a", "id", "name", "domain", "order", "x_1"]), min_size=1, max_size=3).map(".".join)
PIECES = st.one_of(
    NAMES.map("{{{{customer.{}}}}}".format),
    NAMES.map("{{{{ {} }}}}".format),
    NAMES.map("{{{{brand.{}}}}}".format),
    st.sampled_from(["{{", "}}", "{", "}", "<b>", "<a href='", "'>", "Hi ", "\n", "{{1}}", "{{A}}", "{{customer}}"]),
    st.text(max_size=3),
)
WORDS = st.lists(PIECES, max_size=6).map("".join)


def template_of(subject: str, html: str, text: str, names: list[str]) -> Template:
    return replace(BASE, subject=subject, html=html, text=text, variables=tuple(dict.fromkeys(names)))


@settings(max_examples=drawn(400))
@given(WORDS, WORDS, WORDS, st.lists(NAMES, max_size=3))
def test_what_was_accepted_stays_as_it_was(subject: str, html: str, text: str, names: list[str]) -> None:
    old = template_of(subject, html, text, names)
    given: dict[str, Any] = {"subject": subject, "html": html, "text": text, "variables": list(old.variables)}
    done = edit_template(BASE, given)
    before, errors = read_template(BASE, given)
    if not errors:
        assert done.template == before
        assert (done.errors, done.added) == ({}, [])
    assert set(done.errors) <= set(errors), "an editor refuses nothing that a file may say"


@settings(max_examples=drawn(400))
@given(WORDS, st.lists(NAMES, max_size=3))
def test_what_is_kept_has_full_names_and_is_not_changed_again(text: str, names: list[str]) -> None:
    given: dict[str, Any] = {"subject": "s", "text": text or None, "variables": list(dict.fromkeys(names))}
    done = edit_template(BASE, given)
    again = edit_template(BASE, given | {"text": done.template.text, "variables": list(done.template.variables)})
    if not done.errors:
        assert check_template(done.template) == []
        assert again.template == done.template
        values = {name: f"<{name}>" for name in placeholder_names(done.template)}
        shown = render(done.template, Values(values), {}).text or ""
        assert all(f"<{name}>" in shown for name in values), "each variable has its place"


@pytest.mark.parametrize("text", ["{{customer.a}} {{b.c}}", "{{b.c}}{{customer.a}}{{customer.b.c}}"])
def test_new_variables_are_declared_in_their_order(text: str) -> None:
    done = edit_template(BASE, {"text": text, "variables": ["z"]})
    assert done.template.variables == ("z", *done.added)
    assert sorted(done.added) == ["a", "b.c"]


def test_a_position_is_not_given_to_the_brand() -> None:
    base = replace(BASE, channel="whatsapp", subject=None, text=None, category="UTILITY")
    done = edit_template(base, {"body": "{{brand.name}}: {{code}}", "variables": []})
    assert (done.template.variables, done.errors) == (("code",), {})


def test_all_mistakes_are_told_at_once() -> None:
    done = edit_template(BASE, {"subject": "{{1}}", "text": "{{name}} {{A}} {{customer.x", "variables": ["B"]})
    assert list(done.errors) == ["subject", "text", "variables"]
    assert len(done.errors["text"].split("\n")) == 3
