"""Twilio exports: templates as listed by its Content API. Templates without WhatsApp approval become SMS templates."""

import re
from typing import Any

from heliograph.domain.exports.records import Exported, ExportedTemplate, LeftOut, Row
from heliograph.templates.policy.import_placeholders import own_placeholders

_SID = re.compile("(?:HX|MG)[0-9A-Za-z]{1,64}")
_TEXT = "twilio/text"
_NUMBERED = re.compile(r"\{\{\s*([1-9][0-9]?)\s*\}\}")
_PHONES = ("phone_number", "phonenumber", "phone", "number", "to", "from")


def template_id(sid: str) -> str:
    """Return our template id for a Twilio content or messaging service SID; other ids are unchanged."""
    return f"tpl_{sid}" if _SID.fullmatch(sid) else sid


def read_row(row: Row) -> Exported:
    if "types" in row:
        return _template(row, str(row.get("friendly_name") or row.get("sid") or ""))
    phone = next((str(row[name]) for name in _PHONES if row.get(name)), "")
    if phone:
        return LeftOut(text=phone, why="the list is of email addresses; who answers STOP is the carrier's to keep")
    return LeftOut(text=str(row.get("sid") or ""), why="not a template")


def _template(row: Row, name: str) -> Exported:
    types, approval = _object(row["types"]), _object(row.get("approval_requests"))
    body = str(_object(types.get(_TEXT)).get("body") or "")
    if not body:
        return LeftOut(text=name, why=f"it has no {_TEXT}, only {', '.join(types) or 'nothing'}")
    numbers = sorted({int(found) for found in _NUMBERED.findall(body)})
    if numbers != list(range(1, len(numbers) + 1)):
        return LeftOut(text=name, why="its numbered variables do not go on from 1 without a gap")
    words: dict[str, Any] = {
        "body": own_placeholders(_NUMBERED.sub(r"{{value_\1}}", body)),
        "variables": [f"value_{number}" for number in numbers],  # in the order of ContentVariables
    }
    is_whatsapp = approval.get("status") == "approved" and approval.get("content_type") == _TEXT
    if is_whatsapp:
        words |= {"category": approval.get("category"), "upstream_name": approval.get("name")}
        words |= {"language": row.get("language")}
    sid = str(row.get("sid") or "")
    own_id = template_id(sid) if _SID.fullmatch(sid) else ""
    return ExportedTemplate(id=sid, own_id=own_id, name=name, channel="whatsapp" if is_whatsapp else "sms", words=words)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
