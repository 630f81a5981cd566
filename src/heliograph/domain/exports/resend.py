"""Reads data exported from Resend: suppressions, domains and templates, as JSON (API responses) or CSV."""

from collections.abc import Mapping
from typing import Any

from heliograph.domain.exports.postmark import template_id
from heliograph.domain.exports.records import (
    Exported,
    ExportedAddress,
    ExportedDomain,
    ExportedTemplate,
    Row,
    SkippedRow,
    as_list,
)
from heliograph.domain.setup.records import Template
from heliograph.templates.policy.import_placeholders import from_foreign_placeholders, original_spellings

_TRUE_VALUES = (True, "true", "True", "TRUE", "1")


def find_template(templates: Mapping[str, Template], id_or_alias: str) -> Template | None:
    """Return a template by our id, its id at Resend, or its alias; None if not found."""
    by_id = templates.get(id_or_alias) or templates.get(template_id(id_or_alias))
    return by_id or next((template for template in templates.values() if template.alias == id_or_alias), None)


def extra_template_fields(row: Row) -> dict[str, Any]:
    """Return a template's fields beyond its content.

    These are alias, sender, reply-to, number variables, fallback values, and the original spelling of variable names.
    """
    fields: dict[str, Any] = {}
    if row.get("alias"):
        fields["alias"] = str(row["alias"])
    if row.get("from"):
        fields["sender"] = str(row["from"])
    if replies := row.get("reply_to"):
        fields["reply_to"] = tuple([replies] if isinstance(replies, str) else map(str, as_list(replies)))
    variables: list[Row] = [item for item in as_list(row.get("variables")) if isinstance(item, dict)]
    if variables:
        values = {str(variable.get("key", "")).lower(): variable.get("fallback_value") for variable in variables}
        fields["numbers"] = tuple(
            str(variable.get("key", "")).lower() for variable in variables if variable.get("type") == "number"
        )
        fields["fallback"] = {name: value for name, value in values.items() if isinstance(value, str | int | float)}
    texts = [str(row[part]) for part in ("subject", "html", "text") if row.get(part)]
    if texts or variables:
        fields["written"] = original_spellings(texts, [str(variable.get("key", "")) for variable in variables])
    return fields


def convert_row(row: Row) -> Exported:
    name, email = str(row.get("name") or ""), str(row.get("email") or "")
    if row.get("html") or row.get("text"):
        content = {
            part: from_foreign_placeholders(str(row[part])) for part in ("subject", "html", "text") if row.get(part)
        }
        id_, alias = str(row.get("id") or ""), str(row.get("alias") or "")
        return ExportedTemplate(
            id=id_,
            name=name or alias,
            content=content,
            local_id=template_id(id_) if id_ else "",
            extra_fields=extra_template_fields(row),
        )
    if "unsubscribed" in row:  # a contact: may be mailed unless unsubscribed
        if row["unsubscribed"] in _TRUE_VALUES:
            return ExportedAddress(email=email)
        return SkippedRow(text=email, reason="the contact has not unsubscribed")
    if email:
        return ExportedAddress(email=email, reason=str(row.get("origin") or row.get("reason") or ""))
    if "published_at" in row or "alias" in row:
        return SkippedRow(text=name, reason="the template has no content; export it individually (GET /templates/:id)")
    if "." in name or row.get("domain"):
        return ExportedDomain(name=name or str(row["domain"]))
    return SkippedRow(text=name or str(row.get("id") or ""), reason="not a suppression, domain or template")
