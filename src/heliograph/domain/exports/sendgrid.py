"""Reads data exported from SendGrid: dynamic templates, suppressions and domains, as JSON (API responses) or CSV."""

from typing import Any

import msgspec

from heliograph.domain.exports.postmark import template_id
from heliograph.domain.exports.records import (
    Exported,
    ExportedAddress,
    ExportedDomain,
    ExportedTemplate,
    Row,
    SkippedRow,
    as_list,
    convert_parts,
    skipped_template,
)
from heliograph.templates.policy.check import EXAMPLE_MAX
from heliograph.templates.policy.placeholders import used_names

_FIELD_BY_PART = {"subject": "subject", "html": "html_content", "text": "plain_content"}
_NO_CONTENT = "the template has no content; export it individually (GET /v3/templates/:id)"
_LEGACY_TEMPLATE = "legacy templates with -substitutions- are not supported; convert it to a dynamic template first"


def convert_row(row: Row) -> Exported:
    name, email = str(row.get("name") or row.get("id") or ""), str(row.get("email") or row.get("recipient_email") or "")
    if "generation" in row or "versions" in row:
        return _convert_template(row, name)
    if email:
        return ExportedAddress(email=email, reason=_suppression_reason(row))
    if "domain" in row:
        return ExportedDomain(name=str(row["domain"]))
    return SkippedRow(text=name, reason="not a suppression, domain or template")


def _suppression_reason(row: Row) -> str:
    """Return the reason of a suppression: only bounces have a status, only complaints have an IP address."""
    return "bounce" if "status" in row else "complaint" if "ip" in row else ""


def _convert_template(row: Row, name: str) -> Exported:
    if row.get("generation") == "legacy":
        return SkippedRow(text=name, reason=_LEGACY_TEMPLATE)
    versions = [version for version in as_list(row.get("versions")) if isinstance(version, dict)]
    active = next((version for version in versions if version.get("active")), versions[0] if versions else {})
    content = convert_parts({part: str(active[field]) for part, field in _FIELD_BY_PART.items() if active.get(field)})
    if not {"html", "text"} & content.parts.keys():
        return SkippedRow(text=name, reason=_NO_CONTENT)
    if content.unsupported:
        return skipped_template(name, content)
    id_, texts = str(row.get("id") or ""), [content.parts[part] for part in _FIELD_BY_PART if part in content.parts]
    examples = {key: text for key, text in _examples(active.get("test_data")).items() if key in used_names(texts)}
    return ExportedTemplate(
        id=id_,
        name=name,
        local_id=template_id(id_) if id_ else "",
        content=content.parts | {"examples": examples},
        extra_fields={"fallback": content.fallback},
        notes=content.changed,
    )


def _examples(test_data: Any) -> dict[str, str]:
    """Return variable → sample value from the test data of SendGrid's preview; a list is encoded as JSON."""
    try:
        data = msgspec.json.decode(test_data) if isinstance(test_data, str) else test_data
    except msgspec.DecodeError:
        return {}
    examples = dict[str, str]()
    groups = [("", data)] if isinstance(data, dict) else []
    for prefix, group in groups:
        for key, value in group.items():
            name = f"{prefix}{key}".lower()
            if isinstance(value, dict):
                groups.append((f"{name}.", value))
            elif value is not None:
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                examples |= {name: text} if len(text) <= EXAMPLE_MAX else {}
    return examples
