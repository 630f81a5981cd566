"""Conversion between the fields of the editor's form and a template."""

import re
from typing import Any

import msgspec

from heliograph.domain.phones.countries import country_code
from heliograph.domain.sending.pricing import format_money
from heliograph.domain.setup.records import Channel, Shape, Template
from heliograph.templates.policy.check import VARIABLES_MAX
from heliograph.templates.policy.locales import read_locale

PARTS: dict[Channel, tuple[str, ...]] = {
    "email": ("subject", "html", "text"),
    "sms": ("body",),
    "whatsapp": ("body", "category", "language", "upstream_name"),
}
# Channel → the parts of a template that are translated.
TRANSLATED: dict[Channel, tuple[str, ...]] = PARTS | {"whatsapp": ("body", "language", "upstream_name")}
_NUMBER = re.compile("[0-9]{1,9}")


class FormLine(msgspec.Struct, frozen=True):
    """A declared variable as a row of the form."""

    name: str
    optional: bool = False
    example: str = ""
    length: str = ""  # maximum length in characters
    fields: str = ""  # field names of a list's items
    most: str = ""  # maximum number of items of a list

    def declared(self) -> dict[str, Any]:
        """Return the variable's declaration as in a setup file; an invalid number stays text, for validation."""
        fields = self.fields.replace(",", " ").split()
        table: dict[str, Any] = {"name": self.name, **({"list": fields} if fields else {})}
        numbers = {"max_length": self.length, **({"max": self.most} if fields else {})}
        return table | {key: int(text) if _NUMBER.fullmatch(text) else text for key, text in numbers.items() if text}


def to_form(template: Template) -> dict[str, str]:
    form = {part: getattr(template, part) or "" for part in PARTS[template.channel]}
    prices = "\n".join(f"{country} {format_money(price)}" for country, price in template.prices.items())
    price = format_money(template.price)
    form |= {
        f"locales.{tag}.{part}": getattr(parts, part) or ""
        for tag, parts in template.locales.items()
        for part in TRANSLATED[template.channel]
    }
    form |= {"locale": template.locale, "timezone": template.timezone, "layout": template.layout or ""}
    return form | {"name": template.name, "priority": template.priority, "price": price, "prices": prices}


def locales_of(form: dict[str, str]) -> list[str]:
    """Return the additional languages in the form."""
    names = (name.split(".") for name in form if name.startswith("locales."))
    return list(dict.fromkeys(name[1] for name in names if len(name) == 3))


def with_locale(form: dict[str, str], channel: Channel) -> dict[str, str]:
    """Return the form with the requested language added, as a copy of the default language."""
    tag = read_locale(form.get("add_locale", "").strip())
    copied = {f"locales.{tag}.{part}": form.get(part, "") for part in TRANSLATED[channel]}
    return {**copied, **form, "add_locale": "", "shown": tag or ""}


def lines_for(template: Template) -> list[FormLine]:
    return [_line(template, name) for name in template.variables]


def _line(template: Template, name: str) -> FormLine:
    shape = template.shapes.get(name, Shape())
    length, most = str(shape.max_length or ""), str(shape.max) if shape.list else ""
    example = template.examples.get(name, "")
    return FormLine(name, name in template.optional, example, length, ", ".join(shape.list), most)


def lines_of(form: dict[str, str]) -> list[FormLine]:
    """Return the variables in the form, in their order."""
    found = [
        FormLine(
            form.get(f"variable.{i}", "").strip().removeprefix("customer."),
            f"optional.{i}" in form,
            form.get(f"example.{i}", ""),
            *(form.get(f"{field}.{i}", "").strip() for field in ("length", "fields", "most")),
        )
        for i in range(VARIABLES_MAX + 1)  # one more than allowed, so that validation rejects it
    ]
    return [line for line in found if line.name]


def to_given(form: dict[str, str], channel: Channel, *, with_prices: bool) -> dict[str, Any]:
    """Return the template's fields as in a setup file; None for an empty part."""
    lines = lines_of(form)
    # `_typed` converts the CR LF line ends that browsers submit to LF.
    given: dict[str, Any] = {part: _typed(form, part) or None for part in PARTS[channel]}
    if tags := locales_of(form):  # a language with only empty parts is removed
        written = {tag: _translated(form, tag, channel) for tag in tags}
        given["locales"] = {tag: parts for tag, parts in written.items() if parts}
    given |= {"layout": form["layout"] or None} if "layout" in form else {}
    given |= {name: said for name in ("locale", "timezone") if (said := form.get(name, "").strip())}
    given |= {
        "name": form.get("name", "").strip(),
        "priority": form.get("priority", "normal"),
        "variables": [line.declared() if "length.0" in form else line.name for line in lines],
        "optional": [line.name for line in lines if line.optional],
        "examples": {line.name: line.example for line in lines if line.example},
    }
    return given | (prices_given(form) if with_prices else {})


def _typed(form: dict[str, str], name: str) -> str:
    return form.get(name, "").replace("\r\n", "\n")


def _translated(form: dict[str, str], tag: str, channel: Channel) -> dict[str, str]:
    return {part: text for part in TRANSLATED[channel] if (text := _typed(form, f"locales.{tag}.{part}"))}


def prices_given(form: dict[str, str]) -> dict[str, Any]:
    pairs = (line.split(maxsplit=1) for line in form.get("prices", "").splitlines() if line.strip())
    prices = {pair[0].upper(): pair[1].strip() if len(pair) > 1 else "" for pair in pairs}
    prices |= {name[6:]: price for name in form if name.startswith("price.") and (price := form[name].strip())}
    if country := country_code(form.get("country", "")):
        prices[country] = form.get("country_price", "").strip()
    return {"price": form.get("price", "").strip() or "0", "prices": prices}


def is_free(form: dict[str, str]) -> bool:
    return form.get("free") == "yes"
