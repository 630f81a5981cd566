"""Reads data exported from Postmark: suppressions, bounces, domains, senders and templates, as JSON or CSV."""

import hashlib
import re
from collections.abc import Mapping

from heliograph.domain.exports.records import (
    Exported,
    ExportedAddress,
    ExportedDomain,
    ExportedLayout,
    ExportedTemplate,
    Row,
    SkippedRow,
    convert_parts,
    skipped_template,
)
from heliograph.domain.setup.records import Template

# Other reasons become manual.
REASON_BY_POSTMARK_TYPE = {"hardbounce": "bounce", "spamcomplaint": "complaint", "spamnotification": "complaint"}
_FIELD_BY_PART = {"subject": "subject", "html": "htmlbody", "text": "textbody"}
_INVALID_ID_CHARACTER = re.compile("[^A-Za-z0-9_]")
_POSTMARK_NUMBER = re.compile("[1-9][0-9]{0,14}")
_FALSE_VALUES = (False, "false", "False", "FALSE", "0")


def template_id(alias: str) -> str:
    """Return our template id for a Postmark alias or number. One of our own ids is returned unchanged."""
    return f"tpl_{_INVALID_ID_CHARACTER.sub('_', alias.removeprefix('tpl_'))[:64]}"


def layout_id(alias: str) -> str:
    return f"lay_{_INVALID_ID_CHARACTER.sub('_', alias)[:64]}"


def numeric_id(id_: str) -> int:
    """Return a numeric id derived from `id_`, as Postmark uses; 48 bits, which every client can represent."""
    return int.from_bytes(hashlib.blake2b(id_.encode(), digest_size=6).digest())


def template_number(id_: str) -> int:
    """Return the template's number at Postmark if it was imported from there, otherwise a derived number."""
    suffix = id_.removeprefix("tpl_")
    return int(suffix) if _POSTMARK_NUMBER.fullmatch(suffix) else numeric_id(id_)


def find_template(templates: Mapping[str, Template], id_or_alias: str) -> Template | None:
    """Return the template by our id, by its Postmark alias or number, or by the number that we returned; else None."""
    if match := templates.get(template_id(id_or_alias)):
        return match
    return next(
        (
            template
            for template in templates.values()
            if id_or_alias in (template.alias, str(template_number(template.id)))
        ),
        None,
    )


def convert_row(row: Row) -> Exported:
    name = str(row.get("name") or "")
    if "htmlbody" in row or "textbody" in row:
        return _convert_template(row, name)
    if "templateid" in row:
        return SkippedRow(text=name, reason="the template has no content; export it individually (GET /templates/:id)")
    if "confirmed" in row or "dkimverified" in row:  # a sender or a domain
        return ExportedDomain(name=str(row.get("domain") or name))
    email = _first_value(row, "emailaddress", "email_address", "email", "recipient")
    if row.get("inactive") in _FALSE_VALUES:
        return SkippedRow(text=email, reason="Postmark still sends to the address after this bounce")
    if email:
        reason = _first_value(row, "suppressionreason", "suppression_reason", "reason", "type")
        return ExportedAddress(email=email, reason=REASON_BY_POSTMARK_TYPE.get(reason.replace(" ", "").lower(), ""))
    return SkippedRow(text=name or str(row.get("id") or ""), reason="not a suppression, domain or template")


def _first_value(row: Row, *names: str) -> str:
    return next((str(row[name]) for name in names if row.get(name)), "")


def _convert_template(row: Row, name: str) -> Exported:
    alias = str(row.get("alias") or row.get("templateid") or "")
    content = convert_parts({part: str(row[field]) for part, field in _FIELD_BY_PART.items() if row.get(field)})
    if content.unsupported:
        return skipped_template(name, content)
    if row.get("templatetype") == "Layout":
        parts = {part: text for part, text in content.parts.items() if part in ("html", "text")}
        return ExportedLayout(name=name or alias, local_id=layout_id(alias), content=parts)
    layout = {"layout": layout_id(str(row["layouttemplate"]))} if row.get("layouttemplate") else {}
    return ExportedTemplate(
        id=alias,
        name=name or alias,
        local_id=template_id(alias) if alias else "",
        content=content.parts | layout,
        extra_fields={"fallback": content.fallback},
        notes=content.changed,
    )
