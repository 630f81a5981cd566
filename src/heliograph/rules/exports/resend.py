"""Resend's exports: suppressions, domains and templates as its API lists them, or as CSV."""

from heliograph.rules.exports.records import Exported, ExportedAddress, ExportedDomain, ExportedTemplate, LeftOut, Row
from heliograph.rules.templates.foreign import own_placeholders

_YES = (True, "true", "True", "TRUE", "1")


def read_row(row: Row) -> Exported:
    name, email = str(row.get("name") or ""), str(row.get("email") or "")
    if row.get("html") or row.get("text"):
        words = {part: own_placeholders(str(row[part])) for part in ("subject", "html", "text") if row.get(part)}
        return ExportedTemplate(id=str(row.get("id") or ""), name=name or str(row.get("alias") or ""), words=words)
    if "unsubscribed" in row:  # a contact: who has not said no may be mailed
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
