"""SendGrid exports: dynamic templates, suppressions and domains, as listed by its API or as CSV."""

from typing import Any

import msgspec

from heliograph.domain.exports.postmark import template_id
from heliograph.domain.exports.records import (
    Exported,
    ExportedAddress,
    ExportedDomain,
    ExportedTemplate,
    LeftOut,
    Row,
    items_of,
    left_words,
    read_words,
)
from heliograph.templates.policy.check import EXAMPLE_MAX
from heliograph.templates.policy.placeholders import used_names

_BODIES = {"subject": "subject", "html": "html_content", "text": "plain_content"}
_WORDLESS = "a template without its words: export it by itself (GET /v3/templates/:id)"
_LEGACY = "a legacy template: its -substitutions- have no counterpart here, make it dynamic first"


def read_row(row: Row) -> Exported:
    name, email = str(row.get("name") or row.get("id") or ""), str(row.get("email") or row.get("recipient_email") or "")
    if "generation" in row or "versions" in row:
        return _template(row, name)
    if email:
        return ExportedAddress(email=email, reason=_reason(row))
    if "domain" in row:
        return ExportedDomain(name=str(row["domain"]))
    return LeftOut(text=name, why="neither a suppression nor a domain nor a template")


def _reason(row: Row) -> str:
    """Return the reason: only bounces have a status, only complaints have an IP address."""
    return "bounce" if "status" in row else "complaint" if "ip" in row else ""


def _template(row: Row, name: str) -> Exported:
    if row.get("generation") == "legacy":
        return LeftOut(text=name, why=_LEGACY)
    versions = [one for one in items_of(row.get("versions")) if isinstance(one, dict)]
    active = next((one for one in versions if one.get("active")), versions[0] if versions else {})
    words = read_words({ours: str(active[theirs]) for ours, theirs in _BODIES.items() if active.get(theirs)})
    if not {"html", "text"} & words.given.keys():
        return LeftOut(text=name, why=_WORDLESS)
    if words.left:
        return left_words(name, words)
    id_, texts = str(row.get("id") or ""), [words.given[part] for part in _BODIES if part in words.given]
    examples = {key: text for key, text in _examples(active.get("test_data")).items() if key in used_names(texts)}
    return ExportedTemplate(
        id=id_,
        name=name,
        own_id=template_id(id_) if id_ else "",
        words=words.given | {"examples": examples},
        kept={"fallback": words.fallback},
        notes=words.changed,
    )


def _examples(test_data: Any) -> dict[str, str]:
    """Return the sample values of SendGrid's preview; lists as JSON."""
    try:
        given = msgspec.json.decode(test_data) if isinstance(test_data, str) else test_data
    except msgspec.DecodeError:
        return {}
    found = dict[str, str]()
    groups = [("", given)] if isinstance(given, dict) else []
    for prefix, group in groups:
        for key, value in group.items():
            name = f"{prefix}{key}".lower()
            if isinstance(value, dict):
                groups.append((f"{name}.", value))
            elif value is not None:
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                found |= {name: text} if len(text) <= EXAMPLE_MAX else {}
    return found
