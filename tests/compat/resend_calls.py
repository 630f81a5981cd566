"""Every call of resend-python as used with our service: those that work, and those refused with their message."""

from collections.abc import Callable
from typing import Any

import msgspec
import resend

from tests.service import until

HELLO: dict[str, Any] = {
    "from": "Acme <hello@acme.test>",
    "to": ["Ada Lovelace <delivered@simulator.test>"],
    "subject": "Hello",
    "html": "<p>Hello</p>",
    "text": "Hello",
}
PDF = b"%PDF-1.4\n\xff\x00"


class ExistingRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Ids of records for the calls; a call that deletes a record creates its own."""

    email: str
    webhook: str
    event: str
    number: Callable[[], int]

    def scheduled(self) -> str:
        return str(resend.Emails.send({**HELLO, "scheduled_at": "in 2 hours"})["id"])  # type: ignore[typeddict-item]

    def domain(self) -> str:
        return str(resend.Domains.create({"name": f"resend{self.number()}.test"})["id"])

    def key(self) -> str:
        return str(resend.ApiKeys.create({"name": f"resend {self.number()}"})["id"])

    def hook(self) -> str:
        fields = {"endpoint": "http://127.0.0.1:9/", "events": ["email.opened", "email.suppressed"]}
        return str(resend.Webhooks.create(fields)["id"])  # type: ignore[arg-type]

    def draft(self) -> str:
        fields = {"name": f"Welcome {self.number()}", "subject": "Hi {{{NAME}}}", "html": "<p>Hi {{{NAME}}}</p>"}
        return str(resend.Templates.create(fields)["id"])  # type: ignore[arg-type]

    def suppressed(self) -> str:
        email = f"gone{self.number()}@example.com"
        resend.Suppressions.add({"email": email})
        return email


Try = Callable[[ExistingRecords], Any]
WORKS: dict[str, Try] = {
    "emails.send": lambda records: resend.Emails.send(HELLO),  # type: ignore[arg-type]
    "batch.send": lambda records: resend.Batch.send([HELLO, HELLO]),  # type: ignore[list-item]
    "emails.get": lambda records: resend.Emails.get(records.email),
    "emails.list": lambda records: resend.Emails.list({"limit": 2, "after": records.email}),
    "emails.update": lambda records: resend.Emails.update({"id": records.scheduled(), "scheduled_at": "in 3 hours"}),
    "emails.cancel": lambda records: resend.Emails.cancel(records.scheduled()),
    "emails.attachments.list": lambda records: resend.Emails.Attachments.list(records.email),
    "emails.attachments.get": lambda records: resend.Emails.Attachments.get(records.email, "1"),
    "emails.receiving.list": lambda records: resend.Emails.Receiving.list({"limit": 2}),
    "domains.create": ExistingRecords.domain,
    "domains.get": lambda records: resend.Domains.get("dom_acme"),
    "domains.list": lambda records: resend.Domains.list({"limit": 1}),
    "domains.update": lambda records: resend.Domains.update({"id": "dom_acme", "open_tracking": False}),
    "domains.verify": lambda records: resend.Domains.verify(records.domain()),
    "domains.remove": lambda records: resend.Domains.remove(records.domain()),
    "webhooks.create": ExistingRecords.hook,
    "webhooks.get": lambda records: resend.Webhooks.get(records.webhook),
    "webhooks.list": lambda records: resend.Webhooks.list(),
    "webhooks.update": lambda records: resend.Webhooks.update({"webhook_id": records.hook(), "status": "disabled"}),
    "webhooks.remove": lambda records: resend.Webhooks.remove(records.hook()),
    "webhooks.rotateSigningSecret": lambda records: resend.Webhooks.rotate_signing_secret(records.hook()),
    "webhooks.events.list": lambda records: resend.Webhooks.list_events(records.webhook, {"limit": 1}),
    "webhooks.events.get": lambda records: resend.Webhooks.get_event(records.webhook, records.event),
    "webhooks.events.attempts.list": lambda records: resend.Webhooks.list_event_attempts(
        records.webhook, records.event
    ),
    "webhooks.events.replay": lambda records: resend.Webhooks.replay_event(records.webhook, records.event),
    "suppressions.add": ExistingRecords.suppressed,
    "suppressions.get": lambda records: resend.Suppressions.get(records.suppressed()),
    "suppressions.list": lambda records: resend.Suppressions.list({"limit": 1}),
    "suppressions.remove": lambda records: resend.Suppressions.remove(records.suppressed()),
    "suppressions.batch.add": lambda records: resend.Suppressions.Batch.add({"emails": ["a@gone.test", "b@gone.test"]}),
    "suppressions.batch.remove": lambda records: resend.Suppressions.Batch.remove({"emails": [records.suppressed()]}),
    "apiKeys.create": ExistingRecords.key,
    "apiKeys.list": lambda records: resend.ApiKeys.list(),
    "apiKeys.remove": lambda records: resend.ApiKeys.remove(records.key()),
    "templates.create": ExistingRecords.draft,
    "templates.get": lambda records: resend.Templates.get(records.draft()),
    "templates.list": lambda records: resend.Templates.list({"limit": 1}),
    "templates.update": lambda records: resend.Templates.update({"id": records.draft(), "html": "<p>Hello</p>"}),
    "templates.publish": lambda records: resend.Templates.publish(records.draft()),
    "templates.duplicate": lambda records: resend.Templates.duplicate(records.draft()),
    "templates.remove": lambda records: resend.Templates.remove(records.draft()),
    "logs.list": lambda records: resend.Logs.list({"limit": 1}),
    "logs.get": lambda records: resend.Logs.get(until(lambda: resend.Logs.list()["data"])[0]["id"]),
}
# call, name of the error, part of our message
REFUSED: dict[str, tuple[Try, str, str]] = {
    "emails.share": (lambda records: resend.Emails.share(records.email), "not_found", "Public message links"),
    "emails.metrics": (lambda records: resend.Emails.metrics(), "not_found", "Statistics are in the dashboard"),
    "domains.claims.create": (
        lambda records: resend.Domains.Claims.create({"name": "acme.test"}),
        "not_found",
        "set its DNS records",
    ),
    "apiKeys.update": (
        lambda records: resend.ApiKeys.update({"id": records.key(), "name": "other"}),
        "validation_error",
        "cannot be renamed",
    ),
    "audiences.list": (lambda records: resend.Audiences.list(), "not_found", "Contacts, segments, topics"),
    "contacts.list": (lambda records: resend.Contacts.list(), "not_found", "Contacts, segments, topics"),
    "contactProperties.list": (
        lambda records: resend.ContactProperties.list(),
        "not_found",
        "Contacts, segments, topics",
    ),
    "segments.list": (lambda records: resend.Segments.list(), "not_found", "Contacts, segments, topics"),
    "topics.list": (lambda records: resend.Topics.list(), "not_found", "Contacts, segments, topics"),
    "broadcasts.list": (lambda records: resend.Broadcasts.list(), "not_found", "Contacts, segments, topics"),
    "automations.list": (lambda records: resend.Automations.list(), "not_found", "Automations are not supported"),
    "events.list": (lambda records: resend.Events.list(), "not_found", "Automations are not supported"),
    "inboxes.list": (lambda records: resend.Inboxes.list(), "not_found", "List inbound mail"),
    "oauthGrants.list": (lambda records: resend.OAuthGrants.list(), "not_found", "returns the usage"),
    "usage.get": (lambda records: resend.Usage.get(), "not_found", "GET /v1/me"),
}
