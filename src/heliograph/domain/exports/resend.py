"""Resend exports: suppressions, domains and templates, as listed by its API or as CSV."""

from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.domain.exports.postmark import template_id
from heliograph.domain.exports.records import (
    Exported,
    ExportedAddress,
    ExportedDomain,
    ExportedTemplate,
    LeftOut,
    Row,
    items_of,
)
from heliograph.domain.setup.records import Template
from heliograph.templates.policy.import_placeholders import own_placeholders, spelled

_YES = (True, "true", "True", "TRUE", "1")


def find_template(templates: Mapping[str, Template], given: str) -> Template | None:
    """Return a template by our id, its id at Resend, or its alias; None if not found."""
    named = templates.get(given) or templates.get(template_id(given))
    return named or next((one for one in templates.values() if one.alias == given), None)


def kept_fields(given: Row) -> dict[str, Any]:
    """Return the fields of a template beyond its content: alias, sender, reply-to, variable fallbacks and spellings."""
    fields: dict[str, Any] = {}
    if given.get("alias"):
        fields["alias"] = str(given["alias"])
    if given.get("from"):
        fields["sender"] = str(given["from"])
    if replies := given.get("reply_to"):
        fields["reply_to"] = tuple([replies] if isinstance(replies, str) else map(str, items_of(replies)))
    variables = _objects(given.get("variables"))
    if variables:
        values = {str(one.get("key", "")).lower(): one.get("fallback_value") for one in variables}
        fields["numbers"] = tuple(str(one.get("key", "")).lower() for one in variables if one.get("type") == "number")
        fields["fallback"] = {name: value for name, value in values.items() if isinstance(value, str | int | float)}
    texts = [str(given[part]) for part in ("subject", "html", "text") if given.get(part)]
    if texts or variables:
        fields["written"] = spelled(texts, [str(one.get("key", "")) for one in variables])
    return fields


def _objects(given: Any) -> Sequence[Row]:
    return [one for one in items_of(given) if isinstance(one, dict)]


def read_row(row: Row) -> Exported:
    name, email = str(row.get("name") or ""), str(row.get("email") or "")
    if row.get("html") or row.get("text"):
        words = {part: own_placeholders(str(row[part])) for part in ("subject", "html", "text") if row.get(part)}
        id_, alias = str(row.get("id") or ""), str(row.get("alias") or "")
        return ExportedTemplate(
            id=id_, name=name or alias, words=words, own_id=template_id(id_) if id_ else "", kept=kept_fields(row)
        )
    if "unsubscribed" in row:  # a contact: may be mailed unless unsubscribed
        if row["unsubscribed"] in _YES:
            return ExportedAddress(email=email)
        return LeftOut(text=email, why="a contact who has not unsubscribed")
    if email:
        return ExportedAddress(email=email, reason=str(row.get("origin") or row.get("reason") or ""))
    if "published_at" in row or "alias" in row:
        return LeftOut(text=name, why="a template without its words: export it by itself (GET /templates/:id)")
    if "." in name or row.get("domain"):
        return ExportedDomain(name=name or str(row["domain"]))
    return LeftOut(text=name or str(row.get("id") or ""), why="neither a suppression nor a domain nor a template")
