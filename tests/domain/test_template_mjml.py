"""MJML as the source of an HTML part: where placeholders and blocks are allowed, and the errors for invalid MJML."""

import re
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from heliograph.domain.exports.records import ExportedTemplate, edit_exported
from heliograph.domain.limits import HTML_MAX
from heliograph.domain.setup.records import Layout, Template
from heliograph.domain.setup.setup_file import parse_setup_file
from heliograph.templates.policy import layout_drafts
from heliograph.templates.policy.check import check_template
from heliograph.templates.policy.mjml import MJML_TAGS_MAX, compile_mjml
from heliograph.templates.policy.render import render
from heliograph.templates.policy.setup_lint import lint_file
from heliograph.templates.policy.source import compile_source
from heliograph.templates.policy.template_edit import apply_fields, edit_template
from heliograph.templates.policy.values import read_variables

needs_mjml = pytest.mark.skipif(find_spec("mjml") is None, reason="mjml-python is not installed")
TITLES = "{{#each customer.items}}<mj-text>{{item.title}}</mj-text>{{else}}<mj-text>None</mj-text>{{/each}}"
ROWS = "<mj-table>{{#each customer.items}}<tr><td>{{item.title}}</td></tr>{{/each}}</mj-table>"
FOR_ALL = f'<mj-attributes><mj-all font-family="{"a" * 200_000}"/>'  # at each of 450 tags it would be 90 MB
TOO_LONG = "its mj-attributes are too long for the number of tags"
GIVEN = {"x": "A & B", "items": [{"title": "Tea"}, {"title": "<Milk>"}]}


def column(inside: str) -> str:
    return f"<mj-section><mj-column>{inside}</mj-column></mj-section>"


def mail(body: str, head: str = "") -> str:
    return f"<mjml>\n<mj-head>{head}</mj-head>\n<mj-body>\n{body}\n</mj-body></mjml>"


def template(html: str) -> Template:
    base = Template(id="tpl_1", team="team_1", channel="email", name="T", subject="S")
    declared = ["x", {"name": "items", "list": ["title"]}]
    new, error = apply_fields(base, {"html": html, "variables": declared})
    assert error == {}
    return new


@needs_mjml
@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (mail(column("<mj-text>Hi {{ customer.x }}, 1 &lt; 2</mj-text>")), ["Hi A &amp; B, 1 &lt; 2"]),
        (mail(column("<mj-text>{{#if customer.x}}<b>y</b>{{else}}n{{/if}}</mj-text>")), ["<b>y</b></div>"]),
        (mail(column(TITLES)), [">Tea</div>", ">&lt;Milk&gt;</div>"]),
        (mail(column(ROWS)), ["<tr><td>Tea</td></tr><tr><td>&lt;Milk&gt;</td></tr>"]),
        (mail("{{#if customer.x}}" + column("<mj-text>y</mj-text>") + "{{/if}}"), [">y</div>"]),
        (mail("<mj-raw>{{#if customer.x}}y{{/if}}</mj-raw>"), [">y</div>"]),
        (
            mail(column('<mj-button href="https://a.test/?q={{customer.x}}&amp;b=1">a</mj-button>')),
            ["%20%26%20B&amp;b=1"],
        ),
        (mail(column('<mj-image src="https://a.test/{{customer.x}}" alt="{{customer.x}}" />')), ['alt="A &amp; B"']),
        (mail("", "<mj-title>{{customer.x}}</mj-title>"), ["<title>A &amp; B</title>"]),
        (mail("", "<mj-preview>{{customer.x}}</mj-preview>"), [">A &amp; B</div>"]),
        (f"  \n{mail('')}", ["<!doctype html>"]),
    ],
)
def test_placeholders_and_blocks_survive_mjml_compilation(source: str, parts: list[str]) -> None:
    created = template(source)
    assert check_template(created) == [] and "<mj-" not in (created.html or "")
    html = render(created, read_variables(GIVEN), {}).html or ""
    assert [part for part in parts if part not in html] == []
    assert "fonts.googleapis" not in html


@needs_mjml
@pytest.mark.parametrize(
    ("source", "code"),
    [
        (mail(column('<mj-text color="{{customer.x}}">a</mj-text>')), "misplaced_placeholder"),
        (mail('<mj-section background-url="https://a.test/{{customer.x}}"></mj-section>'), "misplaced_placeholder"),
        (mail(column('<mj-button href="{{#if customer.x}}https://a.test{{/if}}">a</mj-button>')), "misplaced_block"),
        (mail(column('<mj-button href="javascript:{{customer.x}}">a</mj-button>')), "unsafe_address"),
        (mail(f"<mj-wrapper>{{{{#if customer.x}}}}{column('')}{{{{/if}}}}</mj-wrapper>"), "misplaced_block"),
    ],
)
def test_mjml_compiled_to_forbidden_html_is_refused(source: str, code: str) -> None:
    assert {problem.code for problem in check_template(template(source))} == {code}


@needs_mjml
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("<mjml><mj-body>\n<mj-text>", "it cannot be compiled as MJML: unexpected end of stream"),
        ("<mjml>\n<mj-body>ä\n<mj-include path='/etc/passwd' />", "line 3: it cannot be compiled as MJML: "),
        (mail("{{#if customer.x}}"), "line 4: {{#if}} is not closed"),
        (mail("<a>" * MJML_TAGS_MAX), f"it is MJML of more than {MJML_TAGS_MAX} tags"),
        (mail("x" * HTML_MAX), f"the maximum is {HTML_MAX:,}"),
        (mail(column("<mj-text/>" * 450), f"{FOR_ALL}</mj-attributes>"), TOO_LONG),
        (mail(column("<mj-text/>" * 450), FOR_ALL), TOO_LONG),
    ],
)
def test_mjml_invalid_is_refused_with_the_reason(source: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        compile_mjml(source)


@needs_mjml
def test_compiled_mjml_is_not_cached() -> None:
    remaining = compile_source.cache_info().currsize
    for number in range(3):
        compile_mjml(mail(column(f"<mj-text>{number}</mj-text>")))
    assert compile_source.cache_info().currsize == remaining


@needs_mjml
def test_deepest_permitted_mjml_does_not_crash_the_process() -> None:
    """Each compiles in a thread whose stack is no larger than those of the service."""
    program = f"""
import threading
from heliograph.templates.policy.mjml import compile_mjml
N = {MJML_TAGS_MAX - 2}
def look(tag):
    try: compile_mjml("<mjml><mj-body>" + f"<{{tag}}>" * N + "</mj-body></mjml>")
    except ValueError: pass
    compile_mjml("<mjml><mj-body>" + f"<{{tag}}>" * N + f"</{{tag}}>" * N + "</mj-body></mjml>")
for tag in ("mj-wrapper", "mj-section", "mj-hero", "mj-column", "div"):
    started = threading.Thread(target=look, args=(tag,)); started.start(); started.join()
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


HTML = mail(column("<mj-text>{{customer.x}}</mj-text>"))
FILE = f"""
[[teams]]
id = "team_1"
[[teams.layouts]]
id = "lay_1"
html = '''<mjml><mj-body><mj-raw>{{{{content}}}}</mj-raw></mj-body></mjml>'''
[[teams.templates]]
id = "tpl_1"
channel = "email"
subject = "S"
html = '''{HTML}'''
variables = ["x"]
[teams.templates.locales.de]
subject = "S"
html = '''{HTML}'''
"""


@needs_mjml
def test_files_pages_programs_and_imports_compile_alike() -> None:
    file, html = parse_setup_file(FILE, {}), compile_mjml(HTML)
    team = file.teams[0]
    assert [item.code for item in lint_file(file) if item.level == "error"] == []
    assert team["templates"][0]["html"] == team["templates"][0]["locales"]["de"]["html"] == html
    assert team["layouts"][0]["html"].endswith("{{content}}</div></body></html>")
    base, values = Template(id="tpl_1", team="team_1", channel="email", name="T"), {"subject": "S", "html": HTML}
    exported = ExportedTemplate(id="1", name="T", content=values)
    by_import, by_page = edit_exported(exported, "tpl_1", "team_1"), edit_template(base, values | {"variables": []})
    assert (by_import.errors, by_page.errors) == ({}, {})
    assert apply_fields(base, values)[0].html == by_page.template.html == by_import.template.html == html
    layout, error = layout_drafts.apply_fields(Layout(id="lay_1", team="team_1", name="L"), {"html": HTML})
    assert (layout.html, error) == (html, {})


@pytest.mark.parametrize("given", [{"html": HTML}, {"locales": {"de": {"subject": "S", "html": HTML}}}])
def test_mjml_without_the_extra_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, "mjml", None)
    base = Template(id="tpl_1", team="team_1", channel="email", name="T")
    _, error = apply_fields(base, given)
    assert ["pip install 'heliograph[mjml]'" in why for why in error.values()] == [True]
    assert compile_mjml("<p>a</p>") == "<p>a</p>"


@needs_mjml
def test_mjml_that_becomes_too_much_html_is_refused() -> None:
    images = "<mj-carousel-image src='a'/>" * 490
    with pytest.raises(ValueError, match=f"characters of HTML, the maximum is {HTML_MAX:,}"):
        compile_mjml(mail(column(f"<mj-carousel>{images}</mj-carousel>")))
