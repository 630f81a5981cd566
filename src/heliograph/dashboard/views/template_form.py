"""Converts between the fields of the editor's form and a template."""

import re
from typing import Any

import msgspec

from heliograph.domain.phones.countries import country_code
from heliograph.domain.sending.pricing import format_amount
from heliograph.domain.setup.records import Channel, Template, VariableType
from heliograph.templates.policy.check import VARIABLES_MAX
from heliograph.templates.policy.locales import read_locale

PARTS: dict[Channel, tuple[str, ...]] = {
    "email": ("subject", "html", "text", "category"),
    "sms": ("body",),
    "whatsapp": ("body", "category", "language", "upstream_name"),
}
# channel → parts of a template that are translated
TRANSLATED: dict[Channel, tuple[str, ...]] = PARTS | {
    "email": ("subject", "html", "text"),
    "whatsapp": ("body", "language", "upstream_name"),
}
_WHOLE_NUMBER = re.compile("[0-9]{1,9}")


class VariableRow(msgspec.Struct, frozen=True):
    name: str
    optional: bool = False
    example: str = ""
    length: str = ""  # maximum length in characters
    fields: str = ""  # names of the fields of a list's items
    max_items: str = ""  # maximum number of items of a list

    def declaration(self) -> dict[str, Any]:
        """Return the variable's declaration as in a setup file.

        An invalid number remains text, so that validation reports it.
        """
        fields = self.fields.replace(",", " ").split()
        table: dict[str, Any] = {"name": self.name, **({"list": fields} if fields else {})}
        numbers = {"max_length": self.length, **({"max": self.max_items} if fields else {})}
        return table | {
            key: int(text) if _WHOLE_NUMBER.fullmatch(text) else text for key, text in numbers.items() if text
        }


def form_values(template: Template) -> dict[str, str]:
    form = {part: getattr(template, part) or "" for part in PARTS[template.channel]}
    prices = "\n".join(f"{country} {format_amount(price)}" for country, price in template.prices.items())
    price = format_amount(template.price)
    form |= {
        f"locales.{tag}.{part}": getattr(parts, part) or ""
        for tag, parts in template.locales.items()
        for part in TRANSLATED[template.channel]
    }
    form |= {"locale": template.locale, "timezone": template.timezone, "layout": template.layout or ""}
    return form | {"name": template.name, "priority": template.priority, "price": price, "prices": prices}


def list_locales(form: dict[str, str]) -> list[str]:
    """Return the additional languages in the form."""
    names = (name.split(".") for name in form if name.startswith("locales."))
    return list(dict.fromkeys(name[1] for name in names if len(name) == 3))


def add_locale(form: dict[str, str], channel: Channel) -> dict[str, str]:
    """Return the form with the requested language, which begins as a copy of the default language."""
    tag = read_locale(form.get("add_locale", "").strip())
    copied_parts = {f"locales.{tag}.{part}": form.get(part, "") for part in TRANSLATED[channel]}
    return {**copied_parts, **form, "add_locale": "", "shown": tag or ""}


def template_variables(template: Template) -> list[VariableRow]:
    return [_variable_row(template, name) for name in template.variables]


def _variable_row(template: Template, name: str) -> VariableRow:
    variable_type = template.shapes.get(name, VariableType())
    length, max_items = str(variable_type.max_length or ""), str(variable_type.max) if variable_type.list else ""
    example = template.examples.get(name, "")
    return VariableRow(name, name in template.optional, example, length, ", ".join(variable_type.list), max_items)


def form_variables(form: dict[str, str]) -> list[VariableRow]:
    """Return the variables in the form, in order."""
    rows = [
        VariableRow(
            form.get(f"variable.{number}", "").strip().removeprefix("customer."),
            f"optional.{number}" in form,
            form.get(f"example.{number}", ""),
            *(form.get(f"{field}.{number}", "").strip() for field in ("length", "fields", "most")),
        )
        for number in range(VARIABLES_MAX + 1)  # one more than allowed, so that validation refuses it
    ]
    return [row for row in rows if row.name]


def template_fields(form: dict[str, str], channel: Channel, *, with_prices: bool) -> dict[str, Any]:
    """Return the template's fields as in a setup file; an empty part is None."""
    variables = form_variables(form)
    # Browsers submit line ends as CR LF.
    fields: dict[str, Any] = {part: _normalize_newlines(form, part) or None for part in PARTS[channel]}
    if tags := list_locales(form):  # removes languages whose parts are all empty
        parts_by_tag = {tag: _translated_parts(form, tag, channel) for tag in tags}
        fields["locales"] = {tag: parts for tag, parts in parts_by_tag.items() if parts}
    fields |= {"layout": form["layout"] or None} if "layout" in form else {}
    fields |= {name: value for name in ("locale", "timezone") if (value := form.get(name, "").strip())}
    fields |= {
        "name": form.get("name", "").strip(),
        "priority": form.get("priority", "normal"),
        "variables": [variable.declaration() if "length.0" in form else variable.name for variable in variables],
        "optional": [variable.name for variable in variables if variable.optional],
        "examples": {variable.name: variable.example for variable in variables if variable.example},
    }
    return fields | (price_fields(form) if with_prices else {})


def _normalize_newlines(form: dict[str, str], name: str) -> str:
    return form.get(name, "").replace("\r\n", "\n")


def _translated_parts(form: dict[str, str], tag: str, channel: Channel) -> dict[str, str]:
    return {part: text for part in TRANSLATED[channel] if (text := _normalize_newlines(form, f"locales.{tag}.{part}"))}


def price_fields(form: dict[str, str]) -> dict[str, Any]:
    pairs = (price_line.split(maxsplit=1) for price_line in form.get("prices", "").splitlines() if price_line.strip())
    prices = {pair[0].upper(): pair[1].strip() if len(pair) > 1 else "" for pair in pairs}
    prices |= {name[6:]: price for name in form if name.startswith("price.") and (price := form[name].strip())}
    if country := country_code(form.get("country", "")):
        prices[country] = form.get("country_price", "").strip()
    return {"price": form.get("price", "").strip() or "0", "prices": prices}


def is_free(form: dict[str, str]) -> bool:
    return form.get("free") == "yes"
