"""The template linter: each warning with its part, language and line, and no warning for correct templates."""

from typing import Any

import pytest

from heliograph.domain.setup.records import Layout, LocaleParts, Template
from heliograph.templates.policy import lint, markup
from heliograph.templates.policy.lint import find_layout_problems, find_problems
from heliograph.templates.policy.mail_clients import AS_OF, GMAIL_CLIP_OCTETS, SOURCE

PIXEL = '<img src="https://a.test/a.png" alt="" width="1">'


def template(**fields: Any) -> Template:
    existing = {"id": "tpl_1", "team": "team_1", "channel": "email", "name": "T", "subject": "S", "variables": ("x",)}
    return Template(**existing | ({} if fields.get("channel") else {"text": "x"}) | fields)


def sms(body: str, **fields: Any) -> Template:
    return template(channel="sms", subject=None, body=body, **fields)


def problems_in(template_: Template) -> list[tuple[str, str, int | None]]:
    return [(problem.code, problem.part, problem.line) for problem in find_problems(template_)]


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
def test_template_lint_reports_html_problems(html: str, expected: list[tuple[str, int]]) -> None:
    assert problems_in(template(html=html)) == [(code, "html", line) for code, line in expected]


def test_template_lint_reports_missing_text_and_too_long_html() -> None:
    long = "<p>" + "x" * GMAIL_CLIP_OCTETS + "</p>"
    assert problems_in(template(text=None, html=long)) == [
        ("no_text_part", "text", None),
        ("html_too_long", "html", None),
    ]
    layout = Layout(id="lay_1", team="team_1", name="L", html="x" * 1000 + "{{content}}")
    just = template(html="x" * (GMAIL_CLIP_OCTETS - 500))
    assert problems_in(just) == []
    assert [problem.code for problem in find_problems(just, layout)] == ["html_too_long"]


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
def test_template_lint_reports_sms_problems(
    body: str, examples: dict[str, str], expected: list[tuple[str, int | None, str]]
) -> None:
    problems = find_problems(sms(body, examples=examples))
    assert [(item.code, item.line) for item in problems] == [(code, line) for code, line, _ in expected]
    assert all(text in item.text for item, (_, _, text) in zip(problems, expected, strict=True))


def test_template_lint_names_the_language() -> None:
    item = template(html="<p>a</p>", locales={"de": LocaleParts(subject="S", html="a\n<p>", text="x")})
    (problem,) = find_problems(item)
    assert (problem.level, problem.code, problem.locale, problem.line) == ("warning", "unclosed_tag", "de", 2)


def test_errors_come_first_and_have_their_line() -> None:
    item = template(html="<p>\n{{customer.y}}", timezone="Nowhere/Land")
    problems = find_problems(item)
    assert [(problem.level, problem.code, problem.line) for problem in problems] == [
        ("error", "unknown_variable", 2),
        ("error", "invalid_timezone", None),
        ("warning", "unclosed_tag", 1),
    ]
    assert find_problems(sms("{{customer.x|date}}", timezone="Nowhere/Land", examples={"x": "2026-01-01"}))


def test_template_lint_warns_of_parts_of_other_channels() -> None:
    (problem,) = find_problems(sms("Hi", html="<p>Hi</p>"))
    assert (problem.level, problem.code, problem.part) == ("warning", "unused_part", "html")
    assert problem.text == "it is never sent: a template for sms has only body"
    assert problems_in(template(body="Hi")) == [("unused_part", "body", None)]
    translated = sms("Hi", locales={"de": LocaleParts(body="Hallo", subject="Hallo")})
    assert [(problem.code, problem.field) for problem in find_problems(translated)] == [
        ("unused_part", "locales.de.subject")
    ]


def test_template_lint_checks_layouts() -> None:
    layout = Layout(id="lay_1", team="team_1", name="L", html="<div>{{content}}\n{{brand.nope}}")
    assert [(item.level, item.code, item.line) for item in find_layout_problems(layout)] == [
        ("error", "unknown_variable", 2),
        ("warning", "unclosed_tag", 1),
    ]


@pytest.mark.parametrize("part", ["subject", "text", "html"])
def test_template_lint_warns_of_unknown_brand_fields(part: str) -> None:
    item = template(**{part: "{{brand.name}} {{brand.domain}} {{ brand.nope }} {{brand.nope}} {{brand.logo}}"})
    problems = find_problems(item)
    assert [(problem.level, problem.code) for problem in problems] == [("warning", "unknown_variable")] * 2
    assert [(problem.part, problem.line) for problem in problems] == [(part, 1)] * 2
    assert "{{brand.nope}}" in problems[0].text


def test_the_table_of_clients_has_a_date_and_a_source() -> None:
    assert AS_OF.startswith("20") and SOURCE.startswith("https://")


def test_html_with_very_many_tags_is_checked_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[object]()
    parsed = markup.parse_tags
    monkeypatch.setattr(lint, "parse_tags", lambda *given: (read.append(tag) or tag for tag in parsed(*given)))  # type: ignore[func-returns-value]
    codes = [code for code, _, _ in problems_in(template(html="<b>" * 170_000, text="T"))]
    assert codes == ["html_too_long", "html_too_long"]  # too many tags, too many bytes for Gmail
    assert len(read) <= lint.TAGS_MAX + 1
