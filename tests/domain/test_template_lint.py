"""The linter of templates: each warning with its part, language and line, and none about what is well."""

from typing import Any

import pytest

from heliograph.domain.setup.records import Layout, LocaleParts, Template
from heliograph.templates.policy import lint, markup
from heliograph.templates.policy.lint import problems_of, problems_of_layout
from heliograph.templates.policy.mail_clients import AS_OF, GMAIL_CLIPS, SOURCE

PIXEL = '<img src="https://a.test/a.png" alt="" width="1">'


def template(**fields: Any) -> Template:
    known = {"id": "tpl_1", "team": "team_1", "channel": "email", "name": "T", "subject": "S", "variables": ("x",)}
    return Template(**known | ({} if fields.get("channel") else {"text": "x"}) | fields)


def sms(body: str, **fields: Any) -> Template:
    return template(channel="sms", subject=None, body=body, **fields)


def found(one: Template) -> list[tuple[str, str, int | None]]:
    return [(problem.code, problem.part, problem.line) for problem in problems_of(one)]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (f'<p>Hi <b>{{{{customer.x}}}}</b><br>there {PIXEL}</p><a href="mailto:a@a.test">A</a>', []),
        ("<!-- <p> --><title><p></title><hr/><o:p/>", []),
        ("<p>\n<div>\n</p>", [("unclosed_tag", 2)]),
        ("<table>\n<tr>\n<td>a</td>\n</table>", [("unclosed_tag", 2)]),
        ("<p>a</p>\n<b>", [("unclosed_tag", 2)]),
        ('a\n<a href="https://a.test>b', [("unclosed_tag", 2)]),
        ("</p>", []),
        ('{{#if customer.x}}<p class="a">{{else}}<p class="b">{{/if}}a</p>', []),
        ("{{#if customer.x}}<b>a</b>{{else}}\n<i>b{{/if}}", [("unclosed_tag", 2)]),
        ('\n<img src="https://a.test/a.png" width="1">', [("image_without_alt", 2)]),
        ('\n\n<a href="http://a.test/{{customer.x}}">a</a>', [("insecure_link", 3)]),
        ('\n<a href="mailto:a@a.test{{customer.x}}">a</a>', [("insecure_link", 2)]),
        ('<a href="mailto:a%40a.test{{customer.x}}">a</a>', [("insecure_link", 1)]),
        ('<a href="mailto:?a=b&amp;to=a@a.test{{customer.x}}&amp;b=c">a</a>', [("insecure_link", 1)]),
        ('<a href="mailto:?to=a@{{customer.x}}.test&amp;body=a@a.test{{customer.x}}">a</a>', []),
        ('<a href="mailto:a@{{customer.x}}.test?subject={{customer.x}}">a</a>', []),
        ('<a href="mailto:a@a{{customer.x}}.test">a</a>', []),
        ('<a href="{{customer.x}}">a</a>', []),
        ("<p>\n<video></video></p>", [("unsupported_feature", 2)]),
        ('<p>a</p>\n<p style="display: grid">a</p>', [("unsupported_feature", 2)]),
        ("<style>\n\nb{display:grid}</style>", [("unsupported_feature", 3)]),
    ],
)
def test_html(html: str, expected: list[tuple[str, int]]) -> None:
    assert found(template(html=html)) == [(code, "html", line) for code, line in expected]


def test_a_mail_has_a_text_part_and_is_not_too_long() -> None:
    long = "<p>" + "x" * GMAIL_CLIPS + "</p>"
    assert found(template(text=None, html=long)) == [("no_text_part", "text", None), ("html_too_long", "html", None)]
    layout = Layout(id="lay_1", team="team_1", name="L", html="x" * 1000 + "{{content}}")
    just = template(html="x" * (GMAIL_CLIPS - 500))
    assert found(just) == []
    assert [problem.code for problem in problems_of(just, layout)] == ["html_too_long"]


@pytest.mark.parametrize(
    ("body", "examples", "expected"),
    [
        ("Hi {{customer.x}}", {}, []),
        ("a" * 161, {}, [("more_segments", None, "2 segments")]),
        ("a" * 150 + "{{customer.x}}", {"x": "b" * 11}, [("more_segments", None, "2 segments")]),
        ("a" * 160 + "{{customer.x}}", {}, [("more_segments", None, "2 segments")]),  # its name, as in the preview
        ("a\nb–", {}, [("unicode_segment", 2, "– (en dash)")]),
        ("Привет, как дела", {}, []),
        ("see http://a.test", {}, [("insecure_link", 1, "http://a.test")]),
    ],
)
def test_sms(body: str, examples: dict[str, str], expected: list[tuple[str, int | None, str]]) -> None:
    problems = problems_of(sms(body, examples=examples))
    assert [(one.code, one.line) for one in problems] == [(code, line) for code, line, _ in expected]
    assert all(text in one.text for one, (_, _, text) in zip(problems, expected, strict=True))


def test_other_languages_are_named() -> None:
    one = template(html="<p>a</p>", locales={"de": LocaleParts(subject="S", html="a\n<p>", text="x")})
    (problem,) = problems_of(one)
    assert (problem.level, problem.code, problem.locale, problem.line) == ("warning", "unclosed_tag", "de", 2)


def test_errors_come_first_and_have_their_line() -> None:
    one = template(html="<p>\n{{customer.y}}", timezone="Nowhere/Land")
    problems = problems_of(one)
    assert [(problem.level, problem.code, problem.line) for problem in problems] == [
        ("error", "unknown_variable", 2),
        ("error", "invalid_timezone", None),
        ("warning", "unclosed_tag", 1),
    ]
    assert problems_of(sms("{{customer.x|date}}", timezone="Nowhere/Land", examples={"x": "2026-01-01"}))


def test_layouts_are_looked_at_too() -> None:
    layout = Layout(id="lay_1", team="team_1", name="L", html="<div>{{content}}\n{{brand.nope}}")
    assert [(one.level, one.code, one.line) for one in problems_of_layout(layout)] == [
        ("error", "unknown_variable", 2),
        ("warning", "unclosed_tag", 1),
    ]


@pytest.mark.parametrize("part", ["subject", "text", "html"])
def test_what_a_brand_does_not_have_renders_empty(part: str) -> None:
    one = template(**{part: "{{brand.name}} {{brand.domain}} {{ brand.nope }} {{brand.nope}} {{brand.logo}}"})
    problems = problems_of(one)
    assert [(problem.level, problem.code) for problem in problems] == [("warning", "unknown_variable")] * 2
    assert [(problem.part, problem.line) for problem in problems] == [(part, 1)] * 2
    assert "{{brand.nope}}" in problems[0].text


def test_the_table_of_clients_has_a_date_and_a_source() -> None:
    assert AS_OF.startswith("20") and SOURCE.startswith("https://")


def test_html_with_very_many_tags_is_checked_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[object]()
    monkeypatch.setattr(lint, "tags", lambda *given: (read.append(tag) or tag for tag in markup.tags(*given)))  # type: ignore[func-returns-value]
    codes = [code for code, _, _ in found(template(html="<b>" * 170_000, text="T"))]
    assert codes == ["html_too_long", "html_too_long"]  # too many tags, too many bytes for Gmail
    assert len(read) <= lint.TAGS_MAX + 1
