"""Templates: variables, rendering by context, and what `apply` refuses."""

import re
import tracemalloc
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.domain.limits import BODY_OCTETS_MAX, SUBJECT_OCTETS_MAX, VARIABLES_OCTETS_MAX
from heliograph.domain.refusals import (
    BodyTooLong,
    InvalidRequest,
    InvalidSubject,
    MissingVariable,
    Refusal,
    TemplateNotFound,
    UnknownVariable,
    WrongTemplateChannel,
)
from heliograph.domain.setup.records import Channel, Team, TeamRecord, Template
from heliograph.templates.policy.check import check_template, find_template
from heliograph.templates.policy.render import Rendered, check_subject, render
from heliograph.templates.policy.values import (
    Values,
    check_variables,
    check_variables_size,
    missing_and_unknown,
    read_variables,
)


def email(**fields: Any) -> Template:
    values = {"id": "tpl_1", "team": "team_1", "channel": "email", "name": "T", "subject": "S", "text": "x"}
    return Template(**values | fields)


def html(source: str, value: str, other: str = "") -> str:
    rendered = render(email(html=source), Values({"v": value, "w": other}), {"name": "Ac<me", "domain": "acme.test"})
    assert rendered.html is not None
    return rendered.html


# -- variables ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (None, {}),
        ({}, {}),
        ({"name": "Ada"}, {"name": "Ada"}),
        ({"customer.name": "Ada"}, {"name": "Ada"}),
        ({"customer": {"name": "Ada"}}, {"name": "Ada"}),
        ({"order": {"item": {"sku": "x"}}}, {"order.item.sku": "x"}),
        ({"order.item": {"sku": "x"}}, {"order.item.sku": "x"}),
        ({"customer": {"order.id": 7}}, {"order.id": "7"}),
        ({"customer.order": {"id": 7}}, {"order.id": "7"}),
        ({"name": "Ada", "customer": {"name": "Ada"}}, {"name": "Ada"}),
        ({"name": None, "customer.name": "Ada"}, {"name": "Ada"}),
        ({"name": None, "customer": {"x": None}, "group": {}}, {}),
        ({"name": ""}, {"name": ""}),
        (
            {"a": True, "b": False, "c": 0, "d": -12, "e": 10**20},
            dict(zip("abcde", ["true", "false", "0", "-12", "1" + "0" * 20], strict=True)),
        ),
        ({"a": 0.1, "b": 2.5, "c": 5.0}, {"a": "0.1", "b": "2.5", "c": "5.0"}),
        ({"customer": "Ada", "brand": "VW"}, {"customer": "Ada", "brand": "VW"}),
        ({"brand.name": "Evil"}, {"brand.name": "Evil"}),
        ({"brand": {"name": "Evil"}}, {"brand.name": "Evil"}),
        ({"customer": {"brand": {"name": "Evil"}}}, {"brand.name": "Evil"}),
    ],
)
def test_template_variables_are_parsed(given: dict[str, Any] | None, values: dict[str, str]) -> None:
    assert read_variables(given).texts == values


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"name": "Ada", "customer.name": "Bob"}, "variables.name"),
        ({"customer": {"name": "Ada"}, "name": "Bob"}, "variables.name"),
        ({"order.id": 1, "order": {"id": 2}}, "variables.order.id"),
        ({"items": [{}, 1]}, "variables.items"),
        ({"items": [{"a": [1]}]}, "variables.items[0].a"),
    ],
)
def test_template_variables_of_wrong_type_are_refused(given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        read_variables(given)
    assert error.value.param == param


DECLARING = email(variables=("name", "order.id", "note"), optional=("note",))


@pytest.mark.parametrize(
    ("values", "refusal", "names"),
    [
        ({}, MissingVariable, ["name", "order.id"]),
        ({"order.id": "1", "other": "x"}, MissingVariable, ["name"]),
        (
            {"name": "", "order.id": "", "b": "", "a": "", "brand.name": ""},
            UnknownVariable,
            ["b", "a", "brand.name"],
        ),
    ],
)
def test_template_variables_missing_or_unknown_are_refused(
    values: dict[str, str], refusal: type[Refusal], names: list[str]
) -> None:
    with pytest.raises(refusal) as error:
        check_variables(DECLARING, Values(values))
    assert error.value.param == "variables"
    assert error.value.details == {"variables": names}
    assert all(name in error.value.message for name in names)


@pytest.mark.parametrize("more", [{}, {"note": "x"}])
def test_template_variables_matching_the_declaration_pass(more: dict[str, str]) -> None:
    check_variables(DECLARING, Values({"name": "", "order.id": "1"} | more))


@pytest.mark.parametrize(
    ("given", "refusal", "names"),
    [
        ({"other": {}}, UnknownVariable, ["other"]),
        ({"customer": {"b": {}, "a": {"x": {}}}}, UnknownVariable, ["a.x", "b"]),
        ({"order": {"other": {}}}, UnknownVariable, ["order.other"]),
        ({"brand": {}}, UnknownVariable, ["brand"]),
        ({"k" * 1000: {}}, UnknownVariable, None),
        ({"note": {}}, InvalidRequest, None),
        ({"note": {"x": {}}}, InvalidRequest, None),
        ({"order.id": {}}, InvalidRequest, None),
    ],
)
def test_template_variables_that_are_empty_objects_are_refused(
    given: dict[str, Any], refusal: type[Refusal], names: list[str] | None
) -> None:
    with pytest.raises(refusal) as error:
        check_variables(DECLARING, read_variables({"name": "", "customer.order.id": "1"} | given))
    assert len(error.value.message) < 500
    if names:
        assert error.value.details == {"variables": names}


@pytest.mark.parametrize("given", [{"customer": {}}, {"order": {}}, {"other": None}, {"customer": {"order": {}}}])
def test_template_variables_without_members_are_absent(given: dict[str, Any]) -> None:
    check_variables(DECLARING, read_variables({"name": "", "order.id": "1"} | given))


def test_template_missing_and_unknown_variables_are_listed() -> None:
    assert missing_and_unknown(DECLARING, Values({"x": "", "name": "", "y": ""})) == (["order.id"], ["x", "y"])


# -- rendering ---------------------------------------------------------------------------------------------


def test_template_renders_every_part() -> None:
    template = email(
        subject="Hi {{customer.v}}",
        html="<p>{{ customer.v }} of {{brand.name}}{{customer.absent}}{{brand.absent}}</p>",
        text="{{\tcustomer.v\n}}/{{customer.order.id}}",
    )
    rendered = render(template, Values({"v": "<A&B>", "order.id": "7"}), {"name": "Acme"})
    assert rendered == Rendered(subject="Hi <A&B>", html="<p>&lt;A&amp;B&gt; of Acme</p>", text="<A&B>/7", body=None)


def test_template_renders_an_sms_body() -> None:
    template = email(channel="sms", subject=None, text=None, body="{{customer.v}} & {{brand.name}}")
    assert render(template, Values({"v": "'"}), {"name": "A"}) == Rendered(
        subject=None, html=None, text=None, body="' & A"
    )


def test_rendered_values_are_not_parsed_as_placeholders() -> None:
    template = email(subject="{{customer.a}}{{customer.b}}", html="{{customer.a}}", text="{{{customer.c}}}")
    values = {"a": "{{customer.b}}", "b": "}}{{brand.name}}", "c": "{customer.a}"}
    rendered = render(template, Values(values), {"name": "SECRET"})
    assert rendered.subject == "{{customer.b}}}}{{brand.name}}"
    assert rendered.html == "{{customer.b}}"
    assert rendered.text == "{{customer.a}}"


def test_brand_value_of_the_caller_is_ignored() -> None:
    assert render(email(text="{{brand.name}}"), Values({"brand.name": "Evil"}), {"name": "Acme"}).text == "Acme"


@pytest.mark.parametrize(
    ("source", "value", "expected"),
    [
        ("<p>{{customer.v}}</p>", """<b>&"'""", "<p>&lt;b&gt;&amp;&quot;&#x27;</p>"),
        ("<p>{{brand.name}}</p>", "", "<p>Ac&lt;me</p>"),
        ('<p title="{{customer.v}}">', '" onclick="x', '<p title="&quot; onclick=&quot;x">'),
        ("<p title='{{customer.v}}'>", "' onclick='x", "<p title='&#x27; onclick=&#x27;x'>"),
        ("<title>{{customer.v}}</title>", "</title><script>", "<title>&lt;/title&gt;&lt;script&gt;</title>"),
        ("1 < 2 {{customer.v}}", "<", "1 < 2 &lt;"),
        ("<script>a<b</script>{{customer.v}}", "<", "<script>a<b</script>&lt;"),
        ("<!-- <a href=' --><b>{{customer.v}}</b>", "'>", "<!-- <a href=' --><b>&#x27;&gt;</b>"),
        ("<a title=it's>{{customer.v}}</a>", "'", "<a title=it's>&#x27;</a>"),
    ],
)
def test_text_and_attributes_are_escaped(source: str, value: str, expected: str) -> None:
    assert html(source, value) == expected
    assert not check_template(email(html=source, variables=("v",)))


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("https://x.test/a?b=c&d=e#f", "https://x.test/a?b=c&amp;d=e#f"),
        ("HTTP://x.test", "HTTP://x.test"),
        ("mailto:ada@x.test", "mailto:ada@x.test"),
        ("tel:+441234", "tel:+441234"),
        (" \t\nhttps://x.test ", "https://x.test"),
        ("https://x.test/a b\"c'd<e>", "https://x.test/a%20b%22c%27d%3Ce%3E"),
        ("https://x.test/%20é", "https://x.test/%20%C3%A9"),
        ("javascript:alert(1)", "#"),
        ("JaVaScRiPt:alert(1)", "#"),
        ("java\tscript:alert(1)", "#"),
        ("\x01javascript:alert(1)", "#"),
        ("javascript&colon;alert(1)", "#"),
        ("&#106;avascript:alert(1)", "#"),
        ("https&colon;//x.test", "#"),
        ("data:text/html,<script>", "#"),
        ("vbscript:x", "#"),
        ("file:///etc/passwd", "#"),
        ("x.test/path", "#"),
        ("/path", "#"),
        ("//x.test", "#"),
        ("", "#"),
    ],
)
@pytest.mark.parametrize(
    ("before", "after"),
    [('<a href="', '">x</a>'), ("<IMG\nSRC = ' ", "'/>"), ('<form class="c" action="', '"></form>')],
)
def test_template_url_from_a_variable_is_checked(before: str, after: str, value: str, address: str) -> None:
    blank = " " if before.endswith(" ") and address != "#" else ""
    source = before + "{{customer.v}}" + after
    assert html(source, value) == before.rstrip(" ") + blank + address + after
    assert not check_template(email(html=source, variables=("v",)))


@pytest.mark.parametrize(
    ("source", "value", "other", "expected"),
    [
        ("https://x.test/{{customer.v}}", "a/b c\"'<>", "", "https://x.test/a/b%20c%22%27%3C%3E"),
        ("https://x.test/{{customer.v}}", "javascript:alert(1)", "", "https://x.test/javascript:alert(1)"),
        (
            "https://x.test/?a={{customer.v}}&amp;b=1",
            "1&b=2#%+ ;",
            "",
            "https://x.test/?a=1%26b=2%23%25%2B%20%3B&amp;b=1",
        ),
        ("https://x.test/?to={{customer.v}}", "ada@x.test", "", "https://x.test/?to=ada@x.test"),
        ("https://{{brand.domain}}/{{customer.v}}", "p", "", "https://acme.test/p"),
        ("https://{{customer.v}}.x.test", "evil.example/?", "", "https://evil.example.x.test"),
        ("https://a.{{ customer.v }}/p", "x@evil.example:1\\", "", "https://a.xevil.example1/p"),
        ("https://{{customer.v}}{{customer.w}}.x.test/", "a-1", "b/#", "https://a-1b.x.test/"),
        ("https:{{customer.v}}.x.test/p", "evil.example/?", "", "https:evil.example.x.test/p"),
        ("https:/{{customer.v}}.x.test", "evil.example/?", "", "https:/evil.example.x.test"),
        ("https:///{{customer.v}}.x.test", "evil.example/?", "", "https:///evil.example.x.test"),
        ("HTTPS:\\\\{{customer.v}}.x.test", "evil.example/?", "", "HTTPS:\\\\evil.example.x.test"),
        ("https&colon;//{{customer.v}}.x.test", "evil.example/?", "", "https&colon;//evil.example.x.test"),
        ("https:&#47;/{{customer.v}}.x.test", "evil.example/?", "", "https:&#47;/evil.example.x.test"),
        ("https:/&#9;/{{customer.v}}.x.test", "evil.example/?", "", "https:/&#9;/evil.example.x.test"),
        ("https://x&quot;{{customer.v}}{{customer.w}}.x.test", "a", "b/", "https://x&quot;ab.x.test"),
        ("https:x.test/{{customer.v}}", "a/b", "", "https:x.test/a/b"),
        ("https://x.test{{customer.v}}", ".evil.example", "", "https://x.test/.evil.example"),
        ("https://x.test{{customer.v}}", "@evil.example", "", "https://x.test/@evil.example"),
        ("https://x.test{{customer.v}}", "/orders/7?a=b", "", "https://x.test/orders/7?a=b"),
        ("https://x.test{{customer.v}}/p", "", "", "https://x.test/p"),
        ("https:x.test{{customer.v}}", ".evil.example", "", "https:x.test/.evil.example"),
        ("https://{{brand.domain}}{{customer.v}}", "-evil.example", "", "https://acme.test/-evil.example"),
        ("https://x.test:{{customer.v}}", "8080/@", "", "https://x.test:8080"),
        ("https://x.test{{customer.v}}{{customer.w}}", "", ".evil.example", "https://x.test/.evil.example"),
        ("{{customer.v}}{{customer.w}}", "https://x.test", ".evil.example", "https://x.test/.evil.example"),
        ("{{customer.v}}{{customer.w}}", "https:x.test", "\t@evil.example", "https:x.test/@evil.example"),
        ("{{customer.v}}{{customer.w}}", "https://x.test", "/a", "https://x.test/a"),
        ("{{customer.v}}{{customer.w}}", "https://x.test/?id=", "7", "https://x.test/?id=7"),
        ("mailto:{{customer.v}}", "ada@x.test", "", "mailto:ada@x.test"),
        ("https://x.test/?u=https://{{customer.v}}", "y.test/p", "", "https://x.test/?u=https://y.test/p"),
        (
            "mailto:{{customer.v}}?subject={{customer.w}}",
            "a@x.test",
            "A & B",
            "mailto:a@x.test?subject=A%20%26%20B",
        ),
        *(
            (f"mailto:help@x.test{{{{customer.v}}}}{rest}", value, "", f"mailto:help@x.test{rest}")
            for rest in ("", "?subject=Hi", ",b@x.test", "#a")
            for value in (
                ".evil.example",
                "@evil.example",
                ",a@evil.example",
                "?bcc=a@evil.example",
                "%2Ca@evil.example",
            )
        ),
        *(
            (f"mailto:{before}{{{{customer.v}}}}{rest}", value, "", f"mailto:{before}{rest}")
            for before, rest in (
                ("help%40x.test", ""),
                ("a%40x.test%2chelp%40x.test", "?subject=Hi"),
                ("?to=help@x.test", ""),
                ("?subject=a@b&amp;Cc=help@x.test", "&amp;body=Hi"),
                ("a@x.test?b%63c=a@x.test;help%40x.test", "%2Cb@x.test"),
            )
            for value in (".evil.example", ",b@evil.example", "?bcc=a@evil.example", "%2Cb@evil.example")
        ),
        ("mailto:{{customer.v}}%40x.test", "b@evil,c", "", "mailto:b%40evil%2Cc%40x.test"),
        ("mailto:?to={{customer.v}}@x.test", "b@evil,c", "", "mailto:?to=b%40evil%2Cc@x.test"),
        ("mailto:?to=help@{{customer.v}}.x.test", "eu@evil&", "", "mailto:?to=help@euevil.x.test"),
        ("mailto:?cc={{customer.v}}&amp;body=a@b", "b@x.test&", "", "mailto:?cc=b@x.test%26&amp;body=a@b"),
        ("mailto:?cc=a@x.test,{{customer.v}}", "b@x.test&bcc=c", "", "mailto:?cc=a@x.test,b@x.test%26bcc=c"),
        ("mailto:?to=a@x.test&amp;body=b@x{{customer.v}}", ", ada", "", "mailto:?to=a@x.test&amp;body=b@x,%20ada"),
        ("mailto:a@x.test?{{customer.v}}", "bcc=b@evil", "", "mailto:a@x.test?bcc%3Db%40evil"),
        ("mailto:help&#64;x.test{{customer.v}}", ".evil.example", "", "mailto:help&#64;x.test"),
        (" MAILTO:help@{{customer.v}}.x.test", "eu@evil.example?", "", " MAILTO:help@euevil.example.x.test"),
        ("mailto:help@x.{{customer.v}}", "test,a@evil", "", "mailto:help@x.testaevil"),
        ("mailto:help@{{customer.w}}.x.test{{customer.v}}", ".evil.example", "eu", "mailto:help@eu.x.test"),
        ("mailto:help@{{brand.domain}}", "", "", "mailto:help@acme.test"),
        ("mailto:help@{{brand.domain}}{{customer.v}}", ".evil.example", "", "mailto:help@acme.test"),
        ("mailto:?{{customer.w}}=a@x.test{{customer.v}}", ".evil.example", "bcc", "mailto:?bcc=a@x.test"),
        ("mailto:{{customer.v}}@x.test", "ada_l+1", "", "mailto:ada_l%2B1@x.test"),
        ("mailto:a.{{customer.v}}.{{customer.w}}@x.test", "b@evil?", ",c", "mailto:a.b%40evil%3F.%2Cc@x.test"),
        ("mailto:a@x.test,{{customer.v}}", "b@x.test", "", "mailto:a@x.test,b@x.test"),
        ("mailto:{{customer.v}}?cc={{customer.w}}", "a@x.test", "b&bcc=c", "mailto:a@x.test?cc=b%26bcc=c"),
        ("{{customer.v}}{{customer.w}}", "mailto:a@x.test", ".evil.example", "mailto:a@x.test"),
        ("{{customer.v}}{{customer.w}}", "mailto:a%40x.test", ".evil.example", "mailto:a%40x.test"),
        ("{{customer.v}}{{customer.w}}", "mailto:?a=b&cc=a@x.test", ",b@evil", "mailto:?a=b&amp;cc=a@x.test"),
        ("{{customer.v}}?to=a@x.test{{customer.w}}", "mailto:", ".evil.example", "mailto:?to=a@x.test"),
        ("{{customer.v}}@x.test{{customer.w}}", "mailto:a", ".evil.example", "mailto:a@x.test"),
        ("tel:{{customer.v}}", "+44 1", "", "tel:+44%201"),
        ("{{customer.v}}/p?x={{customer.w}}", "https://x.test", "a&b", "https://x.test/p?x=a%26b"),
        ("{{customer.v}}{{customer.w}}", "java", "script:x", "#"),
        ("{{customer.v}}:alert(1)", "javascript", "", "#"),
        ("{{customer.v}}&#58;alert(1)", "javascript", "", "#"),
        ("{{customer.v}}{{customer.w}}", "", "https://x.test", "https://x.test"),
    ],
)
def test_template_url_part_from_a_variable_is_encoded(source: str, value: str, other: str, expected: str) -> None:
    source = f'<a href="{source}">'
    assert html(source, value, other) == f'<a href="{expected}">'
    assert not check_template(email(html=source, variables=("v", "w")))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Go to https://{{customer.v}}.x.test now", "Go to https://evil.example.x.test now"),
        ("https:&#47;/{{customer.v}}.x.test", "https:&#47;/evil.example.x.test"),
        ("https://x.test/{{customer.v}}", "https://x.test/evil.example/?"),
        ("https://x.test {{customer.v}}", "https://x.test evil.example/?"),
        ("See https://x.test{{customer.v}} now", "See https://x.test/evil.example/? now"),
        ("https://{{#if customer.v}}{{customer.v}}{{else}}x{{/if}}.test", "https://evil.example.test"),
        ("https://x.test{{#if customer.w}}/a{{else}}{{customer.v}}{{/if}}", "https://x.test/evil.example/?"),
        ("https://x.test{{#if customer.w}}/{{/if}}{{customer.v}}", "https://x.test/evil.example/?"),
        ("https://x.test{{#if customer.v}}/a/{{customer.v}}{{/if}}", "https://x.test/a/evil.example/?"),
    ],
)
def test_a_value_does_not_move_a_link_of_a_text(source: str, expected: str) -> None:
    rendered = render(email(text=source, html=f"<p>{source}</p>"), Values({"v": "evil.example/?"}), {})
    assert (rendered.text, rendered.html) == (expected, f"<p>{expected}</p>")


REFUSED_PLACES = [
    "<script>{{customer.v}}</script>",
    "<script>a</scripty>{{customer.v}}</script>",
    "<script>{{customer.v}}",
    "<STYLE>a{color:{{customer.v}}}</STYLE>",
    "<noscript>{{customer.v}}</noscript>",
    "<iframe>{{customer.v}}</iframe>",
    '<title><a href="{{customer.v}}"></title>',
    "<p onclick=\"x('{{customer.v}}')\">",
    '<p ONLOAD="{{customer.v}}">',
    '<p style="color:{{customer.v}}">',
    '<img srcset="{{customer.v}} 2x">',
    '<iframe srcdoc="{{customer.v}}">',
    '<meta http-equiv="refresh" content="0;url={{customer.v}}">',
    "<p title={{customer.v}}>",
    "<a href={{ customer.v }}>",
    "<a href=https://x.test/{{customer.v}}>",
    "<p {{customer.v}}>",
    '<p {{customer.v}}="x">',
    '<p x{{customer.v}}="x">',
    "<{{customer.v}}>",
    "<b{{customer.v}}>",
    "</{{customer.v}}>",
    "<!-- {{customer.v}} -->",
    "<!{{customer.v}}>",
    "<!doctype {{customer.v}}>",
    "<? {{customer.v}} ?>",
]


@pytest.mark.parametrize("source", REFUSED_PLACES)
def test_template_variable_in_an_unsafe_place_is_refused(source: str) -> None:
    problems = check_template(email(html=source, variables=("v",)))
    assert len(problems) == 1
    assert str(problems[0]).startswith("html, line 1: a placeholder can't be used in ")
    assert "VALUE" not in html(source, "VALUE")


@pytest.mark.parametrize(
    "start", ["javascript:", "&#106;avascript:", "data:text/html,", "/p/", "#", "//", "https", "cid:"]
)
def test_an_address_with_an_unsafe_beginning(start: str) -> None:
    source = f'<a href="{start}{{{{customer.v}}}}">'
    assert "must begin with https:" in str(check_template(email(html=source, variables=("v",)))[0])
    assert html(source, "https://x.test") == '<a href="#">'


class Outline(HTMLParser):
    """The tags and attribute names of a page, and the schemes of its URLs."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.addresses: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.addresses += [value or "" for name, value in attrs if name in {"href", "src"}]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}",))


PAGE = """<!doctype html><title>{{customer.v}}</title>
<a href="{{customer.v}}{{customer.w}}" title='{{customer.w}}'>{{customer.v}}</a>
<img alt="{{customer.v}}" src='https://x.test/{{customer.v}}?q={{customer.w}}'>{{customer.w}}"""
NASTY = st.lists(
    st.sampled_from([*"<>&\"'`=/ \t\n\x00{}#?:;", "javascript", "https:", "--", "]]", "script", "{{customer.w}}"])
    | st.characters(),
    max_size=8,
).map("".join)


@settings(max_examples=80)
@given(NASTY, NASTY)
def test_values_never_change_the_page(value: str, other: str) -> None:
    page = html(PAGE, value, other)
    outline = Outline(page)
    assert outline.tags == Outline(html(PAGE, "https://x.test", "a")).tags
    assert page.count("<") == PAGE.count("<")
    assert page.count('"') == PAGE.count('"')
    assert page.count("'") == PAGE.count("'")
    assert all(re.match(r"#|https?:|mailto:|tel:", item, re.IGNORECASE) for item in outline.addresses)


@settings(max_examples=50)
@given(
    st.lists(
        st.sampled_from([*"<>\"'=/ !-", "a", "{{customer.v}}", "<p ", "<!--", "-->", "<script>", "href=", "title="]),
        max_size=14,
    ).map("".join)
)
def test_any_source_compiles_and_keeps_its_literals(source: str) -> None:
    if not check_template(email(html=source, variables=("v",))):
        expected = source.replace("{{customer.v}}", "https:")
        assert html(source, "https:") == expected


# -- subjects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("char", ["\r", "\n", "\t", "\x00", "\x1f", "\x7f", "\x85", "\x9f", "\u2028", "\u2029"])
def test_subject_with_a_control_character_is_refused(char: str) -> None:
    with pytest.raises(InvalidSubject) as error:
        check_subject(f"a{char}b")
    assert error.value.param == "subject"


@pytest.mark.parametrize("subject", ["", "Hi", "Grüße 😀", "a\u00a0b", "a\u202eb", "a\u200bb"])
def test_subject_without_control_characters_is_accepted(subject: str) -> None:
    check_subject(subject)


# -- the template itself -----------------------------------------------------------------------------------

WHATSAPP = {"channel": "whatsapp", "subject": None, "text": None, "body": "b", "category": "UTILITY"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"html": "<p>", "text": None},
        {"channel": "sms", "subject": None, "text": None, "body": "b"},
        WHATSAPP,
        {"text": "{{customer.a_1.b2}}", "variables": ("a_1.b2",), "optional": ("a_1.b2",)},
        {"text": "{{brand.name}}"},
        WHATSAPP | {"variables": ("brand.name", "a")},
        {"html": "<style>@media print{a{b:c}}</style>"},
        {"variables": ("unused", "x" * 63)},
        {"prices": {"GB": 0}},
    ],
)
def test_valid_template_has_no_problems(fields: dict[str, Any]) -> None:
    assert check_template(email(**fields)) == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"subject": None}, "subject: an email template needs one"),
        ({"subject": "a\nb"}, "subject: it must be one line"),
        ({"text": None}, "html, text: an email template needs"),
        ({"channel": "sms"}, "body: a template for SMS needs one"),
        (WHATSAPP | {"body": None}, "body: a template for WhatsApp needs one"),
        (WHATSAPP | {"category": None}, "category: a WhatsApp template needs"),
        ({"text": "{{customer.who}}"}, "text, line 1: {{customer.who}} is not in variables"),
        ({"subject": "{{customer.who}}"}, "subject, line 1: {{customer.who}} is not in variables"),
        ({"text": "{{who}}"}, "text, line 1: {{customer.who}} is not in variables"),
        ({"text": "{{customer.name"}, "text, line 1: '{{customer.name' is not a placeholder"),
        ({"text": "{{customer.Name}}"}, "text, line 1: '{{customer.Name}}' is not a placeholder"),
        ({"text": "{{customer.a..b}}"}, "text, line 1: '{{customer.a..b}}' is not a placeholder"),
        ({"text": "{{customer." + "x" * 64 + "}}"}, "is not a placeholder"),
        (WHATSAPP | {"body": "{{1}}"}, "body, line 1: '{{1}}' is not a placeholder"),
        ({"html": "<p>{{#unless x}}</p>"}, "html, line 1: '{{#unless x}}' is not a placeholder: write {{#each"),
        ({"variables": ("a", "a")}, "variables: 'a' is there twice"),
        ({"variables": ("Name",)}, "variables: 'Name' is not a valid name"),
        ({"variables": ("a\n",)}, "is not a valid name"),
        ({"variables": ("x" * 64,)}, "is not a valid name"),
        ({"variables": ("customer.name",)}, "variables: omit the first part of 'customer.name'"),
        ({"variables": ("brand.name",)}, "variables: omit the first part of 'brand.name'"),
        (WHATSAPP | {"variables": ("brand.domain",)}, "variables: omit the first part of 'brand.domain'"),
        (WHATSAPP | {"variables": ("brand.name",), "body": "{{customer.brand.name}}"}, "is not in variables"),
        (WHATSAPP | {"variables": ("brand.name",), "optional": ("brand.name",)}, "'brand.name' is always available"),
        ({"optional": ("a",)}, "optional: 'a' is not in variables"),
        ({"subject": "x" * 1001}, "subject: it has 1,001 characters, the maximum is 1,000"),
        ({"html": "{{" * 262_145}, "html: it has 524,290 characters, the maximum is 524,288"),
        ({"text": "x" * 524_289}, "text: it has 524,289 characters, the maximum is 524,288"),
        (WHATSAPP | {"body": "x" * 4097}, "body: it has 4,097 characters, the maximum is 4,096"),
        ({"variables": tuple(f"v{i}" for i in range(101))}, "variables: there are 101, the maximum is 100"),
        ({"variables": (".".join("x" * 50 for _ in range(4)),)}, "variables: a name has at most 200 characters"),
        ({"examples": {f"v{i}": "" for i in range(101)}}, "examples: there are 101, the maximum is 100"),
        ({"examples": {"a": "x" * 4097}}, "examples: a value has at most 4,096 characters"),
        ({"examples": {"x" * 201: ""}}, "its name 200"),
        ({"price": -1}, "price: it can't be negative"),
        ({"prices": {"GB": -1}}, "prices.GB: it can't be negative"),
        ({"prices": {"gb": 1}}, "prices.gb: use an ISO country code"),
    ],
)
def test_invalid_template_has_one_problem(fields: dict[str, Any], problem: str) -> None:
    problems = check_template(email(**fields))
    assert len(problems) == 1
    assert problem in str(problems[0])


TEAM = Team(
    record=TeamRecord(ref=1, id="team_1", name="Acme"),
    templates={
        "tpl_mail": email(id="tpl_mail"),
        "tpl_sms": email(id="tpl_sms", channel="sms", body="b"),
        "tpl_draft": email(id="tpl_draft", status="draft"),
        "tpl_old": email(id="tpl_old", status="archived"),
    },
)


def test_find_template_returns_the_team_template() -> None:
    assert find_template(TEAM, "tpl_sms", "sms").id == "tpl_sms"


@pytest.mark.parametrize(
    ("template_id", "channel", "refusal"),
    [
        ("tpl_none", "email", TemplateNotFound),
        ("", "email", TemplateNotFound),
        ("tpl_draft", "email", TemplateNotFound),
        ("tpl_draft", "sms", TemplateNotFound),
        ("tpl_old", "email", TemplateNotFound),
        ("tpl_mail", "sms", WrongTemplateChannel),
        ("tpl_sms", "whatsapp", WrongTemplateChannel),
    ],
)
def test_find_template_of_wrong_id_or_channel_is_refused(
    template_id: str, channel: Channel, refusal: type[Refusal]
) -> None:
    with pytest.raises(refusal) as error:
        find_template(TEAM, template_id, channel)
    assert error.value.param == "template_id"


# -- limits (contract 4) -----------------------------------------------------------------------------------

V = "{{customer.v}}"


@pytest.mark.parametrize(
    ("parts", "value", "size"),
    [
        ({"html": V, "text": ""}, "a", BODY_OCTETS_MAX),
        ({"html": V, "text": V}, "a", BODY_OCTETS_MAX // 2),
        ({"html": V, "text": ""}, "&", BODY_OCTETS_MAX // 5),
        ({"html": "", "text": V}, "&", BODY_OCTETS_MAX),
        ({"html": "", "text": V}, "é", BODY_OCTETS_MAX // 2),
        ({"html": f"<a href='{V}'>", "text": ""}, "é", BODY_OCTETS_MAX // 6 - 2),
        ({"text": "", "subject": V}, "a", SUBJECT_OCTETS_MAX),
        ({"text": "", "body": V}, "a", BODY_OCTETS_MAX),
    ],
)
def test_rendered_part_above_the_octet_limit_is_refused(parts: dict[str, str], value: str, size: int) -> None:
    assert render(email(**parts), Values({"v": value * size}), {})
    with pytest.raises(BodyTooLong):
        render(email(**parts), Values({"v": value * (size + 3)}), {})


@pytest.mark.parametrize("part", [{"html": V * 2000}, {"html": f"<a href='{V * 2000}'>"}, {"text": V * 2000}])
def test_rendered_length_is_checked_before_joining(part: dict[str, str]) -> None:
    value = "&" * 200_000
    tracemalloc.start()
    with pytest.raises(BodyTooLong):
        render(email(**part), Values({"v": value}), {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * len(value)  # the value is not held 2,000 times


def test_variables_are_limited_as_compact_json() -> None:
    size = VARIABLES_OCTETS_MAX - len('{"a":""}')
    check_variables_size({"a": "x" * size})
    check_variables_size({"a": "é" * (size // 2)})
    with pytest.raises(BodyTooLong) as error:
        check_variables_size({"a": "x" * (size + 1)})
    assert error.value.param == "variables"


def test_long_names_of_groups_are_not_repeated_for_each_variable() -> None:
    values = read_variables({"customer": {"x" * 100_000: {f"n{number}": 1 for number in range(5000)}, "a": 1}})
    assert sorted(len(name) for name in values.texts) == [1, 192]
    assert len(read_variables({f"n{number}": 1 for number in range(20_000)}).texts) == 10_000
