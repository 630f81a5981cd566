"""Lists, conditions and formats in templates: rendering, refusals, and agreement with a slow reference renderer."""

import html as markup
import re
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from babel.numbers import format_currency, format_decimal, format_percent
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.refusals import (
    InvalidRequest,
    InvalidVariable,
    ListTooLong,
    MissingVariable,
    Refusal,
    UnknownVariable,
)
from heliograph.domain.setup.records import Layout, LocaleParts, Template, VariableType
from heliograph.templates.policy.bounds import bounds_of
from heliograph.templates.policy.check import check_layout, check_template
from heliograph.templates.policy.formats import cldr_locale
from heliograph.templates.policy.locales import localize, read_locale
from heliograph.templates.policy.render import render
from heliograph.templates.policy.values import check_variables, keep_declared, read_variables
from tests.proof.size import drawn

ITEMS = VariableType(list=("title", "price"), max=3)
LINES = [{"title": "Tea", "price": 2}, {"title": "<Milk>", "price": "0.5"}]
BRAND = {"name": "Acme"}


def email(**fields: Any) -> Template:
    existing = {"id": "tpl_1", "team": "team_1", "channel": "email", "name": "T", "subject": "S", "text": "x"}
    declared = {"variables": ("items", "x", "when"), "shapes": {"items": ITEMS}, "optional": ("items", "x", "when")}
    return Template(**existing | declared | fields)


def rendered_part(part: str, source: str, variables: dict[str, Any], **fields: Any) -> str:
    template = email(**{part: source} | fields)
    assert check_template(template) == []
    values = read_variables(variables)
    check_variables(template, values)
    text = getattr(render(template, values, BRAND), part)
    assert isinstance(text, str)
    return text


LIST = "{{#each customer.items}}{{item.title}}: {{item.price}};{{else}}none{{/each}}"
TITLES = "{{#each customer.items}}{{#if item.title}}{{item.title}}{{else}}?{{/if}},{{/each}}"
INSIDE = "{{#if customer.x}}{{#each customer.items}}{{customer.x}}{{item.title}} {{/each}}{{/if}}"
EITHER = "{{#if customer.x}}yes{{else}}no{{/if}}"


@pytest.mark.parametrize(
    ("source", "given", "text"),
    [
        (LIST, {"items": LINES}, "Tea: 2;<Milk>: 0.5;"),
        (LIST, {"items": []}, "none"),
        (LIST, {}, "none"),
        (LIST, {"customer": {"items": LINES[:1]}}, "Tea: 2;"),
        ("{{ #each customer.items }}", {}, None),
        (TITLES, {"items": [{"title": "", "price": 0}, LINES[0]]}, "?,Tea,"),
        (INSIDE, {"x": "-", "items": LINES}, "-Tea -<Milk> "),
        *((EITHER, {"x": x}, "yes") for x in (0, "0", "false", " ", True, 1.5)),
        *((EITHER, given, "no") for given in ({}, {"x": ""}, {"x": False}, {"x": None})),
        ("{{#if customer.items}}yes{{else}}no{{/if}}", {"items": []}, "no"),
        ("{{#if customer.items}}yes{{/if}}", {"items": LINES}, "yes"),
        ("{{#if customer.x}}only{{/if}}", {}, ""),
    ],
)
def test_template_blocks_render_the_expected_text(source: str, given: dict[str, Any], text: str | None) -> None:
    if text is None:
        assert check_template(email(text=source))[0].code == "unclosed_block"
    else:
        assert rendered_part("text", source, given) == text


def test_each_value_is_escaped_for_its_place() -> None:
    source = (
        '<ul>{{#each customer.items}}<li><a href="https://a.test/?q={{item.title}}">{{item.title}}</a>{{/each}}</ul>'
    )
    assert rendered_part("html", source, {"items": LINES[1:]}) == (
        '<ul><li><a href="https://a.test/?q=%3CMilk%3E">&lt;Milk&gt;</a></ul>'
    )


@pytest.mark.parametrize(
    ("part", "source", "code", "line"),
    [
        ("text", "\n{{#if customer.x}}\n", "unclosed_block", 2),
        ("text", "{{#each customer.items}}{{#if customer.x}}{{/each}}{{/if}}", "crossed_block", 1),
        ("text", "{{/if}}", "crossed_block", 1),
        ("text", "{{else}}", "crossed_block", 1),
        ("text", "{{#if customer.x}}{{else}}{{else}}{{/if}}", "crossed_block", 1),
        ("text", "{{#if customer.x}}{{#if customer.x}}\n{{#if customer.x}}{{/if}}{{/if}}{{/if}}", "nested_too_deep", 2),
        ("text", "{{#each customer.items}}{{#each customer.items}}{{/each}}{{/each}}", "nested_too_deep", 1),
        ("html", '<p class="{{#if customer.x}}a{{/if}}">', "misplaced_block", 1),
        ("html", '<a href="https://a.test/{{#if customer.x}}a{{/if}}">', "misplaced_block", 1),
        ("html", "<p {{#if customer.x}}hidden{{/if}}>", "misplaced_block", 1),
        ("html", "<!-- {{#if customer.x}} -->{{/if}}", "misplaced_block", 1),
        ("html", "<style>{{#if customer.x}}</style>{{/if}}", "misplaced_block", 1),
        ("html", "<title>{{#if customer.x}}</title>{{/if}}", "misplaced_block", 1),
        ("subject", "{{#each customer.items}}{{/each}}", "misplaced_block", 1),
        ("text", "{{item.title}}", "unknown_variable", 1),
        ("text", "{{#each customer.items}}{{else}}{{item.title}}{{/each}}", "unknown_variable", 1),
        ("text", "{{#each customer.items}}{{item.title}}{{/each}}\n{{item.title}}", "unknown_variable", 2),
        ("text", "{{#each customer.items}}{{item.title}}{{else}}\n{{item.title}}{{/each}}", "unknown_variable", 2),
        ("text", "{{customer.x}}\n{{#each customer.x}}{{/each}}", "unknown_variable", 2),
        ("text", "{{#each customer.items}}{{item.colour}}{{/each}}", "unknown_variable", 1),
        ("text", "{{#each customer.x}}{{/each}}", "unknown_variable", 1),
        ("text", "{{#if customer.y}}{{/if}}", "unknown_variable", 1),
        ("text", "{{#each customer.items}}{{/each}}\n{{ customer.items }}", "unknown_variable", 2),
        ("html", '<a href="https://a.test/{{customer.items|number}}">', "unknown_variable", 1),
        ("text", "{{customer.x|upper}}", "unknown_format", 1),
        ("text", "{{customer.x|money}}", "unknown_format", 1),
        ("text", "{{customer.x|money:XXQ}}", "unknown_format", 1),
        ("text", "{{customer.x|date:full}}", "unknown_format", 1),
        ("text", "{% if x %}", "foreign_syntax", 1),
        ("html", "\n\n<p>{{{customer.x}}}", "foreign_syntax", 3),
        ("text", "{{content}}", "misplaced_placeholder", 1),
    ],
)
def test_template_block_error_is_reported_at_save(part: str, source: str, code: str, line: int | None) -> None:
    problem = next(problem for problem in check_template(email(**{part: source})) if problem.code == code)
    assert (problem.level, problem.part, problem.line) == ("error", part, line)
    assert not problem.text.endswith(".")  # those who list problems add it


@pytest.mark.parametrize(
    ("html", "codes"),
    [
        ("<p {{#if customer.x}}hidden{{/if}}>", ["misplaced_block"]),
        ('<p class="{{#if customer.x}}a{{else}}b{{/if}}">', ["misplaced_block"]),
        ("<p {{#if customer.x}}{{customer.x}}{{/if}}>", ["misplaced_block", "misplaced_placeholder"]),
        ("<p {{#if customer.x}}a{{/if}}>\n<p {{#if customer.x}}a{{/if}}>", ["misplaced_block"] * 2),
        ("{{#if customer.x}}<p {{/if}}>", ["unclosed_block", "misplaced_block"]),
    ],
)
def test_block_inside_a_tag_is_reported_once(html: str, codes: list[str]) -> None:
    assert [problem.code for problem in check_template(email(html=html))] == codes


def test_a_whatsapp_template_has_no_blocks() -> None:
    template = email(
        channel="whatsapp", category="UTILITY", subject=None, text=None, body="{{#if customer.x}}a{{/if}}", shapes={}
    )
    assert [problem.code for problem in check_template(template)] == ["misplaced_block"]


STRICT = email(variables=("items", "x"), optional=(), shapes={"items": ITEMS, "x": VariableType(max_length=3)})


@pytest.mark.parametrize(
    ("given", "refusal", "names"),
    [
        ({"x": "a"}, MissingVariable, ["items"]),
        ({"x": "a", "items": [LINES[0], {"title": "b"}]}, MissingVariable, ["items[1].price"]),
        ({"x": "a", "items": [{"title": "b", "price": 1, "colour": "red"}]}, UnknownVariable, ["items[0].colour"]),
        ({"x": "a", "items": [], "y": [{}]}, UnknownVariable, ["y"]),
        ({"x": "abcd", "items": LINES * 2}, ListTooLong, ["items"]),
        ({"x": "abcd", "items": LINES}, InvalidVariable, ["x"]),
    ],
)
def test_list_errors_are_reported_in_the_documented_order(
    given: dict[str, Any], refusal: type[Refusal], names: list[str]
) -> None:
    with pytest.raises(refusal) as error:
        check_variables(STRICT, read_variables(given))
    assert error.value.details == {"variables": names}


def test_list_without_a_declared_maximum_takes_fifty_items() -> None:
    plain = email(variables=("items",), optional=(), shapes={"items": VariableType(list=("title",))})
    items = [{"title": "a"}] * 51
    check_variables(plain, read_variables({"items": items[:50]}))
    with pytest.raises(ListTooLong):
        check_variables(plain, read_variables({"items": items}))


LINE = {"title": "a", "price": 1}


@pytest.mark.parametrize(
    "given",
    [
        {"items": "a"},
        {"items": {"title": "b"}},
        {"items": [], "x": [{}]},
        {"items": [LINE | {"title": {"en": "b"}}]},
        {"items": [LINE | {"title": {}}]},
        {"items": [LINE | {"title": ["b"]}]},
        {"items": [LINE, {"title": {"en": "b"}}]},  # the wrong type is reported before the missing price
        {"items": [], "x": {"en": "b"}},
        {"items": {}},
        {"items": [], "x": {}},
    ],
)
def test_another_type_is_an_invalid_request(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as error:
        check_variables(STRICT, read_variables({"x": "a"} | given))
    assert (error.value.param or "").startswith("variables.")


def test_a_field_whose_name_has_a_dot_is_given_as_an_object() -> None:
    grouped = email(variables=("items",), optional=(), shapes={"items": VariableType(list=("a", "a.b"))})
    check_variables(grouped, read_variables({"items": [{"a": "1", "a.b": "2"}]}))
    with pytest.raises(MissingVariable):
        check_variables(grouped, read_variables({"items": [{"a": {"b": "2"}}]}))


AT = "2026-11-17T23:30:00Z"


@pytest.mark.parametrize(
    ("locale", "source", "value", "text"),
    [
        ("en", "{{customer.x|money:EUR}}", 1234.5, "€1,234.50"),
        ("de", "{{customer.x|money:EUR}}", "1234.5", "1.234,50\u00a0€"),
        ("fr", "{{customer.x|number}}", 1234567, "1\u202f234\u202f567"),
        ("ja", "{{customer.x|money:JPY}}", 1980, "￥1,980"),
        ("en", "{{customer.x|percent}}", 0.25, "25%"),
        ("de", "{{ customer.x | percent }}", "0.25", "25\u00a0%"),
        ("en", "{{customer.x|date}}", AT, "Nov 18, 2026"),  # in Vienna
        ("de", "{{customer.x|date:long}}", "2026-11-17", "17. November 2026"),  # no conversion
        ("de", "{{customer.x|time:short}}", AT, "00:30"),
        ("de-AT", "{{customer.x|datetime:short}}", AT, "18.11.26, 00:30"),
        ("xx-YY", "{{customer.x|number}}", 1000, "1,000"),  # unknown to CLDR
        ("en", "{{customer.x|percent}}", "-0.125", "-12%"),
        ("de", "{{customer.x|date:short}}", AT, "18.11.26"),
        *(("de", f"{{{{customer.x|date{width}}}}}", AT, "18.11.2026") for width in ("", ":medium")),
        *(("de", f"{{{{customer.x|time{width}}}}}", AT, "00:30:00") for width in ("", ":medium")),
        ("de", "{{customer.x|time:long}}", AT, "00:30:00 MEZ"),
        *(("de", f"{{{{customer.x|datetime{width}}}}}", AT, "18.11.2026, 00:30:00") for width in ("", ":medium")),
        ("de", "{{customer.x|datetime:long}}", AT, "18. November 2026, 00:30:00 MEZ"),
    ],
)
def test_template_format_renders_by_locale(locale: str, source: str, value: Any, text: str) -> None:
    assert rendered_part("text", source, {"x": value}, locale=locale, timezone="Europe/Vienna") == text


@settings(max_examples=drawn(500))
@given(
    st.sampled_from(("en", "de", "fr-CH", "ar", "hi", "pl", "es", "ja", "eu", "sv")),
    st.sampled_from(("money:EUR", "money:JPY", "money:KWD", "number", "percent")),
    st.decimals(-(10**15) + 1, 10**15 - 1, places=4) | st.decimals(-1000, 1000, places=3),
)
def test_formatted_number_equals_the_output_of_babel(locale: str, wanted: str, number: Decimal) -> None:
    kind, _, currency = wanted.partition(":")
    write: Any = {"number": format_decimal, "percent": format_percent}.get(kind, format_currency)
    expected = write(number, *[currency] * bool(currency), locale=cldr_locale(locale))
    assert rendered_part("text", f"{{{{customer.x|{wanted}}}}}", {"x": f"{number:f}"}, locale=locale) == expected


def test_an_sms_has_plain_spaces() -> None:
    fields = {"channel": "sms", "subject": None, "text": None, "locale": "de"}
    assert rendered_part("body", "{{customer.x|money:EUR}}", {"x": 1}, **fields) == "1,00 €"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        *(("{{customer.x|number}}", x) for x in ("", "a", "1,5", "NaN", "Infinity", "1e16", "1_000", "١", True, "0x1")),
        *(("{{customer.x|date}}", x) for x in ("2026-02-30", "17.11.2026", 5, "0001-01-01T00:00:00Z", "99999-01-01")),
        ("{{customer.x|time}}", "2026-11-17"),
    ],
)
def test_template_value_that_cannot_be_formatted_is_invalid(source: str, value: Any) -> None:
    with pytest.raises(InvalidVariable) as error:
        check_variables(email(text=source), read_variables({"x": value}))
    assert error.value.details == {"variables": ["x"]}


def test_template_list_items_are_formatted() -> None:
    source = "{{#each customer.items}}{{item.price|money:USD}} {{/each}}"
    assert rendered_part("text", source, {"items": LINES}) == "$2.00 $0.50 "
    with pytest.raises(InvalidVariable) as error:
        check_variables(email(text=source), read_variables({"items": [LINES[0], {"title": "", "price": "free"}]}))
    assert error.value.details == {"variables": ["items[1].price"]}


# -- layouts and languages ---------------------------------------------------------------------------------


def layout(**parts: Any) -> Layout:
    return Layout(id="lay_1", team="team_1", name="L", **parts)


def test_layout_wraps_the_content() -> None:
    around = layout(html="<h1>{{brand.name}}</h1>{{content}}<hr>", text="{{content}}\n-- {{brand.name}}")
    assert check_layout(around) == []
    template = email(html="<p>{{customer.x}}", text="{{customer.x}}")
    rendered = render(template, read_variables({"x": "{{content}}<"}), BRAND, around)
    assert (rendered.html, rendered.text) == ("<h1>Acme</h1><p>{{content}}&lt;<hr>", "{{content}}<\n-- Acme")


@pytest.mark.parametrize(
    ("locale", "html", "read"),
    [
        ("ar", "<html><body><table>{{content}}</table>", '<html dir="rtl"><body><table dir="rtl">x</table>'),
        (
            "he-IL",
            "<!--<html>--><HTML lang='he'>{{content}}<div>",
            '<!--<html>--><HTML dir="rtl" lang=\'he\'>x<div dir="rtl">',
        ),
        ("fa", "<html dir=ltr><div>{{content}}</div>", "<html dir=ltr><div>x</div>"),
        ("fa", "<p>{{content}}</p>", "<p>x</p>"),
        ("de", "<html><table>{{content}}</table>", "<html><table>x</table>"),
        ("pa-Arab", "<table>{{content}}</table><table>", '<table dir="rtl">x</table><table>'),
    ],
)
def test_a_layout_is_read_in_the_direction_of_its_language(locale: str, html: str, read: str) -> None:
    template, around = email(html="x", text="", locale=locale), layout(html=html)
    assert render(template, read_variables({}), BRAND, around).html == read
    assert bounds_of(msgspec.structs.replace(template, variables=()), [BRAND], around, "spec").octets == 1 + len(read)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("parts", "code", "line"),
    [
        ({}, "missing_part", None),
        ({"html": "<p>"}, "missing_content", None),
        ({"text": "{{content}}\n{{content}}"}, "missing_content", 2),
        ({"text": "{{content}}{{brand.name}}\n{{customer.x}}"}, "unknown_variable", 2),
        ({"text": "{{content}}\n\n{{#if customer.x}}{{/if}}"}, "unknown_variable", 3),
        ({"html": "<p title='{{content}}'>"}, "misplaced_placeholder", 1),
    ],
)
def test_layout_with_an_error_is_refused(parts: dict[str, str], code: str, line: int | None) -> None:
    assert (code, line) in [(problem.code, problem.line) for problem in check_layout(layout(**parts))]


GERMAN = LocaleParts(subject="Hallo", text="Hallo {{customer.x}}")
AUSTRIAN = LocaleParts(subject="Servus", text="Servus {{customer.x}}")
MANY = email(subject="Hello", text="Hello {{customer.x}}", locales={"de": GERMAN, "de-AT": AUSTRIAN})


@pytest.mark.parametrize(
    ("asked", "used", "subject"),
    [
        ("de", "de", "Hallo"),
        ("de-AT", "de-AT", "Servus"),
        ("de-CH", "de", "Hallo"),
        ("de-Latn-AT", "de", "Hallo"),
        ("en-GB", "en", "Hello"),
        ("fr", "en", "Hello"),
        ("de-AT-u-co-phonebk-x-foo", "de-AT", "Servus"),
        ("DE-1996-x-a", "de", "Hallo"),
        ("de-gsg-at", "de-AT", "Servus"),
        *((tag, "en", "Hello") for tag in ("en-GB-oed", "fr-CA-x-foo", "i-klingon", "x-de", "sgn-BE-FR", "zh-min-nan")),
        (None, "en", "Hello"),
    ],
)
def test_template_locale_falls_back_to_the_nearest_language(asked: str | None, used: str, subject: str) -> None:
    result = localize(MANY, read_locale(asked))
    assert (result.locale, result.subject) == (used, subject)


def test_language_tags_are_normalized_to_bcp_47() -> None:
    assert [read_locale(tag) for tag in ("DE-at", "zh-hant-tw", "es-419")] == ["de-AT", "zh-Hant-TW", "es-419"]
    assert [read_locale(tag) for tag in ("zh-cmn-Hans-CN", "de-DE-u-co-phonebk")] == ["zh-Hans-CN", "de-DE"]
    for tag in (
        "",
        "d",
        "de_AT",
        "de-",
        "english please",
        "x" * 300,
        "x",
        "de-x",
        "de-u",
        "de-u-x-a",
        "i-nobody",
        "-x-a",
    ):
        with pytest.raises(InvalidRequest) as error:
            read_locale(tag)
        assert error.value.param == "locale"


@pytest.mark.parametrize("tag", ["de-x-foo", "de-u-co-phonebk", "zh-cmn-Hans", "i-klingon", "x-whatever"])
def test_texts_are_kept_by_language_script_region_and_variants(tag: str) -> None:
    template = email(locales={tag: LocaleParts(subject="S", text="x")})
    assert [problem.code for problem in check_template(template)] == ["invalid_locale"]


@pytest.mark.parametrize(
    ("parts", "code", "told"),
    [
        ({"subject": "Hallo"}, "missing_part", "text"),
        ({"subject": "Hallo", "text": "Hallo"}, "missing_variable", "x"),
        ({"subject": "Hallo", "text": "{{customer.x}} {{customer.y}}"}, "unknown_variable", "customer.y"),
    ],
)
def test_template_language_with_missing_parts_is_reported(parts: dict[str, str], code: str, told: str) -> None:
    template = email(text="Hello {{customer.x}}", locales={"de": LocaleParts(**parts)})
    (problem,) = check_template(template)
    assert (problem.code, problem.locale) == (code, "de")
    assert told in problem.text


# -- a slow reference --------------------------------------------------------------------------------------


def reference(source: str, variables: dict[str, Any], item: dict[str, Any] | None = None) -> str:
    """Render by searching the source again for every block.

    Values are inserted last, at marks that no caller can write.
    """
    marks: dict[str, str] = {}

    def mark(text: str) -> str:
        marks[f"\0{len(marks)}\0"] = text
        return f"\0{len(marks) - 1}\0"

    def fill(text: str, item: dict[str, Any] | None) -> str:
        def value(match: re.Match[str]) -> str:
            return mark(markup.escape(str((variables if match[1] == "customer" else item or {}).get(match[2], ""))))

        return re.sub(r"\{\{(customer|item)\.(\w+)\}\}", value, text)

    def outer(text: str, item: dict[str, Any] | None) -> str:
        at, output = 0, ""
        for opening in re.finditer(r"\{\{#(each|if) (customer|item)\.(\w+)\}\}", text):
            if opening.start() < at:
                continue
            depth, end, turn = 0, 0, None
            for tag in re.finditer(r"\{\{(#each|#if|else|/each|/if)[^}]*\}\}", text[opening.start() :]):
                depth += tag[1].startswith("#") - tag[1].startswith("/")
                if tag[1] == "else" and depth == 1:
                    turn = opening.start() + tag.start()
                if not depth:
                    end = opening.start() + tag.start()
                    after = opening.start() + tag.end()
                    break
            inner = text[opening.end() : turn if turn is not None else end]
            otherwise = text[turn + len("{{else}}") : end] if turn is not None else ""
            output += fill(text[at : opening.start()], item)
            at = after
            value = (variables if opening[2] == "customer" else item or {}).get(opening[3])
            if opening[1] == "each":
                output += "".join(outer(inner, entry) for entry in value or []) if value else outer(otherwise, None)
            else:
                output += outer(inner if value not in (None, "", False, []) else otherwise, item)
        return output + fill(text[at:], item)

    text = outer(source, item)
    for name, value in marks.items():
        text = text.replace(name, value)
    return text


WORDS = st.sampled_from(["a ", "<b>", "{{customer.x}}", "{{customer.when}}", "</b>", "{", "}}", " &amp; "])
FIELDS = st.sampled_from(["{{item.title}}", "{{item.price}}", ",", "<i>"])


def block(opening: str, closing: str, inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda body, turn: f"{{{{#{opening}}}}}{body}{turn}{{{{/{closing}}}}}",
        inside,
        st.just("") | inside.map(lambda text: re.sub(r"\{\{item[^}]*\}\}", "", "{{else}}" + text)),
    )


TEXTS = st.lists(WORDS, max_size=4).map("".join)
ITEM_TEXTS = st.lists(
    WORDS | FIELDS | block("if item.title", "if", st.lists(FIELDS, max_size=2).map("".join)), max_size=4
).map("".join)
SOURCES = st.lists(
    WORDS | block("if customer.x", "if", TEXTS) | block("each customer.items", "each", ITEM_TEXTS), max_size=5
).map("".join)
TEXT = st.text("ab<{}&", max_size=5)
GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "x": TEXT | st.booleans() | st.integers(0, 3),
        "when": TEXT,
        "items": st.lists(st.fixed_dictionaries({"title": TEXT | st.just(False), "price": TEXT}), max_size=3),
    },
)


@settings(max_examples=drawn(300))
@given(SOURCES, GIVEN)
def test_renderer_agrees_with_a_simple_reference(source: str, given: dict[str, Any]) -> None:
    template = email(html=source)
    if check_template(template):  # a value completed a tag
        return
    lines = [{field: _spelled(text) for field, text in line.items()} for line in given.get("items", [])]
    spelled = {name: _spelled(value) for name, value in given.items()} | {"items": lines}
    assert render(template, read_variables(given), {}).html == reference(source, spelled)


class _False(str):
    """The text of the boolean false, which also equals False."""

    def __eq__(self, other: object) -> bool:
        return other is False or str.__eq__(self, str(other))

    __hash__ = str.__hash__


def _spelled(value: Any) -> Any:
    return _False("false") if value is False else "true" if value is True else str(value)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"items": [{"title": "a", "price": 1, "sku": 7}]}, {"items": [{"title": "a", "price": 1}]}),
        ({"customer": {"items": [{"z": 1}, 5]}, "other": [1]}, {"items": [{}, 5]}),
        ({"items": "x", "x": ["a"]}, {"items": "x", "x": ["a"]}),
        ({"items": {}, "x": {}}, {}),
    ],
)
def test_requests_in_foreign_formats_may_have_extra_variables(given: dict[str, Any], kept: dict[str, Any]) -> None:
    assert keep_declared(email(), given) == kept
