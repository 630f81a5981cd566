"""Reads templates exported from Twilio's Content API. Templates without WhatsApp approval become SMS templates."""

import re
from typing import Any

from heliograph.domain.exports.records import Exported, ExportedTemplate, Row, SkippedRow
from heliograph.templates.policy.import_placeholders import from_foreign_placeholders

_SID = re.compile("(?:HX|MG)[0-9A-Za-z]{1,64}")
_TEXT_TYPE = "twilio/text"
_NUMBERED_PLACEHOLDER = re.compile(r"\{\{\s*([1-9][0-9]?)\s*\}\}")
_PHONE_FIELDS = ("phone_number", "phonenumber", "phone", "number", "to", "from")


def template_id(sid: str) -> str:
    """Return our template id for a Twilio content or messaging service SID; other ids are unchanged."""
    return f"tpl_{sid}" if _SID.fullmatch(sid) else sid


def convert_row(row: Row) -> Exported:
    if "types" in row:
        return _convert_template(row, str(row.get("friendly_name") or row.get("sid") or ""))
    phone = next((str(row[name]) for name in _PHONE_FIELDS if row.get(name)), "")
    if phone:
        return SkippedRow(
            text=phone, reason="suppressions are email addresses; the carrier manages phone opt-outs (STOP)"
        )
    return SkippedRow(text=str(row.get("sid") or ""), reason="not a template")


def _convert_template(row: Row, name: str) -> Exported:
    types, approval = _as_object(row["types"]), _as_object(row.get("approval_requests"))
    body = str(_as_object(types.get(_TEXT_TYPE)).get("body") or "")
    if not body:
        return SkippedRow(
            text=name, reason=f"the template has no {_TEXT_TYPE} content, only {', '.join(types) or 'nothing'}"
        )
    numbers = sorted({int(number_text) for number_text in _NUMBERED_PLACEHOLDER.findall(body)})
    if numbers != list(range(1, len(numbers) + 1)):
        return SkippedRow(text=name, reason="the numbered variables are not consecutive from 1")
    content: dict[str, Any] = {
        "body": from_foreign_placeholders(_NUMBERED_PLACEHOLDER.sub(r"{{value_\1}}", body)),
        "variables": [f"value_{number}" for number in numbers],  # in the order of ContentVariables
    }
    is_whatsapp = approval.get("status") == "approved" and approval.get("content_type") == _TEXT_TYPE
    if is_whatsapp:
        content |= {"category": approval.get("category"), "upstream_name": approval.get("name")}
        content |= {"language": row.get("language")}
    sid = str(row.get("sid") or "")
    local_id = template_id(sid) if _SID.fullmatch(sid) else ""
    return ExportedTemplate(
        id=sid, local_id=local_id, name=name, channel="whatsapp" if is_whatsapp else "sms", content=content
    )


def _as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
