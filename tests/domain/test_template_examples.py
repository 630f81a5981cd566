"""The mails of examples/templates: each is valid unchanged, in five languages, and renders as expected.

The linter's warnings concern only the layout: dark mode and an adaptive width, which some clients implement
differently. The folder `mails` has each rendered mail; `python -m tests.domain.test_template_examples` writes these
files again.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heliograph.domain.setup.records import Layout, Template
from heliograph.domain.setup.setup_file import parse_setup_file
from heliograph.templates.policy.bounds import bounds_of
from heliograph.templates.policy.locales import localize
from heliograph.templates.policy.render import Rendered, render
from heliograph.templates.policy.setup_lint import lint_file
from heliograph.templates.policy.values import check_bounds, check_types, check_variables, read_variables
from heliograph.templates.policy.variable_types import to_record_fields

FOLDER = Path(__file__).parents[2] / "examples" / "templates"
FILE = parse_setup_file((FOLDER / "shop.toml").read_text("utf-8"), {})
VARIABLES: dict[str, dict[str, Any]] = json.loads((FOLDER / "shop.json").read_text("utf-8"))
TEAM = FILE.teams[0]
BRAND = {"name": TEAM["name"], "domain": "lantern.test"}
LAYOUT = msgspec.convert(TEAM["layouts"][0] | {"team": TEAM["id"]}, Layout)
TEMPLATES = {
    given["id"]: msgspec.convert(to_record_fields(given | {"team": TEAM["id"]}), Template)
    for given in TEAM["templates"]
}
MAILS = Path(__file__).parent / "mails"
LANGUAGES = ("en", "de", "fr", "ja", "ar")


def rendered(id_: str, locale: str) -> Rendered:
    return render(localize(TEMPLATES[id_], locale), read_variables(VARIABLES[id_]), BRAND, LAYOUT)


def as_sent(id_: str, locale: str) -> str:
    mail = rendered(id_, locale)
    return f"Subject: {mail.subject}\n\n{mail.html}\n{mail.text}"


def golden(id_: str, locale: str) -> Path:
    return MAILS / f"{id_.removeprefix('tpl_shop_')}.{locale}.txt"


def test_example_templates_have_no_problems() -> None:
    # Dark mode
    assert {(item.template_id, item.code) for item in lint_file(FILE)} == {("lay_shop", "unsupported_feature")}
    assert set(VARIABLES) == set(TEMPLATES)


@pytest.mark.parametrize("id_", TEMPLATES)
def test_the_example_is_allowed_and_its_bounds_are_known(id_: str) -> None:
    template, values = TEMPLATES[id_], read_variables(VARIABLES[id_])
    for check in (check_types, check_variables, check_bounds):
        check(template, values)
    assert set(template.locales) | {template.locale} == set(LANGUAGES)
    bounds = bounds_of(template, [BRAND], LAYOUT, "spec")
    assert bounds and len((rendered(id_, "en").html or "").encode()) <= bounds.octets


@pytest.mark.parametrize("locale", LANGUAGES)
@pytest.mark.parametrize("id_", TEMPLATES)
def test_example_templates_are_complete_in_every_language(id_: str, locale: str) -> None:
    mail = rendered(id_, locale)
    for part in (mail.subject, mail.html, mail.text):
        assert part and "{{" not in part
    assert f'<div lang="{locale}"' in (mail.html or "")
    assert ('<html dir="rtl">' in (mail.html or "")) == ('dir="rtl" style' in (mail.html or "")) == (locale == "ar")
    assert as_sent(id_, locale) == golden(id_, locale).read_text("utf-8")
    if locale != "en":
        assert mail.subject != rendered(id_, "en").subject


@pytest.mark.parametrize(
    ("locale", "total", "day", "rate"),
    [
        ("en", "€35.00", "November 17, 2026", "10%"),
        ("de", "35,00\xa0€", "17. November 2026", "10\xa0%"),
        ("fr", "35,00\xa0€", "17 novembre 2026", "10\xa0%"),
        ("ja", "€35.00", "2026年11月17日", "10%"),
        ("ar", "35.00", "17 نوفمبر 2026", "10"),
    ],
)
def test_example_receipt_is_formatted_by_language(locale: str, total: str, day: str, rate: str) -> None:
    mail = rendered("tpl_shop_receipt", locale)
    for part in (mail.html or "", mail.text or ""):
        assert total in part and day in part and rate in part
        assert part.count("The Difference Engine") == 1 and "Leave it with the neighbour." in part


def test_a_receipt_without_lines_and_note_says_so() -> None:
    values = read_variables(VARIABLES["tpl_shop_receipt"] | {"items": [], "note": ""})
    mail = render(TEMPLATES["tpl_shop_receipt"], values, BRAND, LAYOUT)
    assert "Nothing was charged." in (mail.text or "") and "Your note" not in (mail.text or "")


if __name__ == "__main__":
    MAILS.mkdir(exist_ok=True)
    for id_ in TEMPLATES:
        for locale in LANGUAGES:
            golden(id_, locale).write_text(as_sent(id_, locale), "utf-8")
