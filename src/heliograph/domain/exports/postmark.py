"""Postmark exports: suppressions, bounces, domains, senders and templates, as listed by its API or as CSV."""

import hashlib
import re
from collections.abc import Mapping

from heliograph.domain.exports.records import (
    Exported,
    ExportedAddress,
    ExportedDomain,
    ExportedLayout,
    ExportedTemplate,
    LeftOut,
    Row,
    left_words,
    read_words,
)
from heliograph.domain.setup.records import Template

# Other reasons become manual.
REASONS = {"hardbounce": "bounce", "spamcomplaint": "complaint", "spamnotification": "complaint"}
_BODIES = {"subject": "subject", "html": "htmlbody", "text": "textbody"}
_NOT_OURS = re.compile("[^A-Za-z0-9_]")
_NUMBER = re.compile("[1-9][0-9]{0,14}")
_NO = (False, "false", "False", "FALSE", "0")


def template_id(alias: str) -> str:
    """Return our template id for a Postmark alias or number; our own ids are unchanged."""
    return f"tpl_{_NOT_OURS.sub('_', alias.removeprefix('tpl_'))[:64]}"


def layout_id(alias: str) -> str:
    return f"lay_{_NOT_OURS.sub('_', alias)[:64]}"


def number_of(id_: str) -> int:
    """Return a numeric id, as Postmark uses, derived from `id_`; 48 bits, so that every client can represent it."""
    return int.from_bytes(hashlib.blake2b(id_.encode(), digest_size=6).digest())


def template_number(id_: str) -> int:
    """Return the template's number at Postmark if it was imported from there, otherwise a derived number."""
    own = id_.removeprefix("tpl_")
    return int(own) if _NUMBER.fullmatch(own) else number_of(id_)


def find_template(templates: Mapping[str, Template], given: str) -> Template | None:
    """Return the template by our id, by its Postmark alias or number, or by the number that we returned."""
    if found := templates.get(template_id(given)):
        return found
    return next((one for one in templates.values() if given in (one.alias, str(template_number(one.id)))), None)


def read_row(row: Row) -> Exported:
    name = str(row.get("name") or "")
    if "htmlbody" in row or "textbody" in row:
        return _template(row, name)
    if "templateid" in row:
        return LeftOut(text=name, why="a template without its words: export it by itself (GET /templates/:id)")
    if "confirmed" in row or "dkimverified" in row:  # a sender or a domain
        return ExportedDomain(name=str(row.get("domain") or name))
    email = _first(row, "emailaddress", "email_address", "email", "recipient")
    if row.get("inactive") in _NO:
        return LeftOut(text=email, why="a bounce after which Postmark still mails it")
    if email:
        reason = _first(row, "suppressionreason", "suppression_reason", "reason", "type")
        return ExportedAddress(email=email, reason=REASONS.get(reason.replace(" ", "").lower(), ""))
    return LeftOut(text=name or str(row.get("id") or ""), why="neither a suppression nor a domain nor a template")


def _first(row: Row, *names: str) -> str:
    return next((str(row[name]) for name in names if row.get(name)), "")


def _template(row: Row, name: str) -> Exported:
    alias = str(row.get("alias") or row.get("templateid") or "")
    words = read_words({ours: str(row[theirs]) for ours, theirs in _BODIES.items() if row.get(theirs)})
    if words.left:
        return left_words(name, words)
    if row.get("templatetype") == "Layout":
        parts = {part: text for part, text in words.given.items() if part in ("html", "text")}
        return ExportedLayout(name=name or alias, own_id=layout_id(alias), words=parts)
    layout = {"layout": layout_id(str(row["layouttemplate"]))} if row.get("layouttemplate") else {}
    return ExportedTemplate(
        id=alias,
        name=name or alias,
        own_id=template_id(alias) if alias else "",
        words=words.given | layout,
        kept={"fallback": words.fallback},
        notes=words.changed,
    )
