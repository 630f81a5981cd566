"""Short forms of placeholders: their meaning, advice for invalid ones, and that both forms render equally."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from heliograph.domain.setup.records import Template, VariableType
from heliograph.templates.policy.check import check_template, placeholder_names
from heliograph.templates.policy.placeholders import expand_short_forms, guess_item_fields, placeholder_advice
from heliograph.templates.policy.render import render
from heliograph.templates.policy.template_edit import apply_and_check, edit_template
from heliograph.templates.policy.values import Values
from tests.proof.size import drawn

BASE = Template(id="tpl_a", team="team_a", channel="email", name="A", subject="s", text="t")


ITEMS = (("items", ("title", "price")),)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("{{order.id}}", "{{customer.order.id}}"),
        ("{{ order.id }} {{name}}", "{{ customer.order.id }} {{customer.name}}"),
        ("{{total|money:EUR}}", "{{customer.total|money:EUR}}"),
        ("{{#if gift}}a{{else}}b{{/if}}", "{{#if customer.gift}}a{{else}}b{{/if}}"),
        (
            "{{#each items}}{{title}} {{name}}{{/each}}",
            "{{#each customer.items}}{{item.title}} {{customer.name}}{{/each}}",
        ),
        (
            "{{#each customer.items}}{{#if title}}{{price|number}}{{else}}{{title}}{{/if}}{{else}}{{title}}{{/each}}",
            "{{#each customer.items}}{{#if item.title}}{{item.price|number}}{{else}}{{item.title}}{{/if}}"
            "{{else}}{{customer.title}}{{/each}}",
        ),
        ("{{#each others}}{{title}}{{/each}}", "{{#each customer.others}}{{customer.title}}{{/each}}"),
    ],
)
def test_short_form_is_expanded_to_the_customer_variable_or_the_declared_field(short: str, full: str) -> None:
    assert expand_short_forms(short, ITEMS) == full
    assert expand_short_forms(full, ITEMS) == full


@pytest.mark.parametrize(
    "text",
    [
        "{{customer.a}} {{brand.name}} {{item.a}} {{else}} {{content}}",
        "{{customer}} {{brand}} {{item}} {{1}} {{A}} {{a",
        "{{{code}}}",
        "{{" + "a" * 64 + "}}",
        "{{" + "a." * 120 + "a}}",
    ],
)
def test_full_form_and_invalid_syntax_are_not_expanded(text: str) -> None:
    assert expand_short_forms(text, ITEMS) == text


def test_short_and_full_form_render_alike() -> None:
    items = [Values({"title": "A&B"}), Values({"title": "C"})]
    values = Values({"name": "<Ada>", "total": "3.5"}, lists={"items": items})
    short = "<p>{{name}}: {{#each items}}<b>{{title}}</b> {{/each}}{{total|number}}</p>"
    full = "<p>{{customer.name}}: {{#each customer.items}}<b>{{item.title}}</b> {{/each}}{{customer.total|number}}</p>"
    shapes = {"items": VariableType(list=("title",))}
    template = replace(BASE, variables=("name", "items", "total"), shapes=shapes)
    rendered = [render(replace(template, html=html), values, {}).html for html in (short, full)]
    assert rendered == ["<p>&lt;Ada&gt;: <b>A&amp;B</b> <b>C</b> 3.5</p>"] * 2
    assert check_template(replace(template, html=short)) == []


def test_undeclared_list_gets_the_short_names_used_only_inside_it() -> None:
    parts = ["{{name}}{{#each items}}{{title}} {{name}} {{code}}{{/each}}", "{{#each items}}{{size}}{{/each}}"]
    assert guess_item_fields(parts, ["code"]) == (("items", ("title", "size")),)
    result = edit_template(BASE, {"text": "{{#each items}}{{title}} {{item.price}}{{/each}}", "variables": []})
    assert result.errors == {}
    assert result.template.text == "{{#each items}}{{title}} {{item.price}}{{/each}}"  # as written
    assert result.template.shapes["items"].list == ("title", "price")


def test_undeclared_short_form_is_one_problem_on_its_line() -> None:
    problems = check_template(replace(BASE, text="Hi\n{{name}}"))
    assert [(problem.code, problem.line) for problem in problems] == [("unknown_variable", 2)]


@pytest.mark.parametrize("size", [1_000, 4_000])
def test_expansion_ends_on_hostile_sources(size: int) -> None:
    for piece in ("{{", "{{ ", "{{#each a}}", "{{a |", "{{/if}}"):
        assert expand_short_forms(piece * size).count("{{") == size


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("{{customer.Name}}", "write {{customer.name}}"),
        ("{{firstName}}", "write {{first_name}}"),
        ("{{First name}}", "write {{first_name}}"),
        ("{{{code}}}", "write {{code}}"),
        ("{{brand}}", "say which, as in {{brand.name}}"),
        ("{{1}}", "use the variable's name, as in {{order.id}}"),
        ("{{#unless x}}", "write {{#each items}}, {{#if name}}"),
        ("{{name | UPPER}}", "a format is number"),
        ("{{customer.name", "close it with }}"),
        ("{{é}}", "names use a-z"),
        ("{{" + ".".join(["a" * 40] * 6) + "}}", "at most 200 characters"),
    ],
)
def test_placeholder_advice_names_the_correct_form(written: str, advice: str) -> None:
    assert advice in placeholder_advice(written)


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
def test_edit_of_a_valid_template_keeps_what_a_file_keeps(subject: str, html: str, text: str, names: list[str]) -> None:
    old = template_of(subject, html, text, names)
    values: dict[str, Any] = {"subject": subject, "html": html, "text": text, "variables": list(old.variables)}
    result = edit_template(BASE, values)
    previous, errors = apply_and_check(BASE, values)
    if not errors:
        assert result.template == previous
        assert (result.errors, result.added_variables) == ({}, [])
    assert set(result.errors) <= set(errors), "an editor refuses nothing that a file may say"


@settings(max_examples=drawn(400))
@given(WORDS, st.lists(NAMES, max_size=3))
def test_saved_edit_is_valid_and_stable(text: str, names: list[str]) -> None:
    fields: dict[str, Any] = {"subject": "s", "text": text or None, "variables": list(dict.fromkeys(names))}
    result = edit_template(BASE, fields)
    second_result = edit_template(
        BASE, fields | {"text": result.template.text, "variables": list(result.template.variables)}
    )
    if not result.errors:
        assert check_template(result.template) == []
        assert second_result.template == result.template
        values = {name: f"<{name}>" for name in placeholder_names(result.template)}
        displayed = render(result.template, Values(values), {}).text or ""
        assert all(f"<{name}>" in displayed for name in values), "each variable has its place"


@pytest.mark.parametrize("text", ["{{customer.a}} {{b.c}}", "{{b.c}}{{customer.a}}{{customer.b.c}}"])
def test_edit_declares_new_variables_in_order(text: str) -> None:
    result = edit_template(BASE, {"text": text, "variables": ["z"]})
    assert result.template.variables == ("z", *result.added_variables)
    assert sorted(result.added_variables) == ["a", "b.c"]


def test_edit_of_a_whatsapp_body_declares_no_brand_position() -> None:
    base = replace(BASE, channel="whatsapp", subject=None, text=None, category="UTILITY")
    result = edit_template(base, {"body": "{{brand.name}}: {{code}}", "variables": []})
    assert (result.template.variables, result.errors) == (("code",), {})


def test_edit_reports_all_mistakes_at_once() -> None:
    result = edit_template(BASE, {"subject": "{{1}}", "text": "{{brand}} {{A}} {{customer.x", "variables": ["B"]})
    assert list(result.errors) == ["subject", "text", "variables"]
    assert len(result.errors["text"].split("\n")) == 3
