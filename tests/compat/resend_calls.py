"""Every call of resend-python that was tried against us: what works, and what is refused with which words."""

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


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Ids of records to call for; each call that ends one makes its own."""

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
        wanted = {"endpoint": "http://127.0.0.1:9/", "events": ["email.opened", "email.suppressed"]}
        return str(resend.Webhooks.create(wanted)["id"])  # type: ignore[arg-type]

    def draft(self) -> str:
        words = {"name": f"Welcome {self.number()}", "subject": "Hi {{{NAME}}}", "html": "<p>Hi {{{NAME}}}</p>"}
        return str(resend.Templates.create(words)["id"])  # type: ignore[arg-type]

    def suppressed(self) -> str:
        email = f"gone{self.number()}@example.com"
        resend.Suppressions.add({"email": email})
        return email


Try = Callable[[Known], Any]
WORKS: dict[str, Try] = {
    "emails.send": lambda known: resend.Emails.send(HELLO),  # type: ignore[arg-type]
    "batch.send": lambda known: resend.Batch.send([HELLO, HELLO]),  # type: ignore[list-item]
    "emails.get": lambda known: resend.Emails.get(known.email),
    "emails.list": lambda known: resend.Emails.list({"limit": 2, "after": known.email}),
    "emails.update": lambda known: resend.Emails.update({"id": known.scheduled(), "scheduled_at": "in 3 hours"}),
    "emails.cancel": lambda known: resend.Emails.cancel(known.scheduled()),
    "emails.attachments.list": lambda known: resend.Emails.Attachments.list(known.email),
    "emails.attachments.get": lambda known: resend.Emails.Attachments.get(known.email, "1"),
    "emails.receiving.list": lambda known: resend.Emails.Receiving.list({"limit": 2}),
    "domains.create": Known.domain,
    "domains.get": lambda known: resend.Domains.get("dom_acme"),
    "domains.list": lambda known: resend.Domains.list({"limit": 1}),
    "domains.update": lambda known: resend.Domains.update({"id": "dom_acme", "open_tracking": False}),
    "domains.verify": lambda known: resend.Domains.verify(known.domain()),
    "domains.remove": lambda known: resend.Domains.remove(known.domain()),
    "webhooks.create": Known.hook,
    "webhooks.get": lambda known: resend.Webhooks.get(known.webhook),
    "webhooks.list": lambda known: resend.Webhooks.list(),
    "webhooks.update": lambda known: resend.Webhooks.update({"webhook_id": known.hook(), "status": "disabled"}),
    "webhooks.remove": lambda known: resend.Webhooks.remove(known.hook()),
    "webhooks.rotateSigningSecret": lambda known: resend.Webhooks.rotate_signing_secret(known.hook()),
    "webhooks.events.list": lambda known: resend.Webhooks.list_events(known.webhook, {"limit": 1}),
    "webhooks.events.get": lambda known: resend.Webhooks.get_event(known.webhook, known.event),
    "webhooks.events.attempts.list": lambda known: resend.Webhooks.list_event_attempts(known.webhook, known.event),
    "webhooks.events.replay": lambda known: resend.Webhooks.replay_event(known.webhook, known.event),
    "suppressions.add": Known.suppressed,
    "suppressions.get": lambda known: resend.Suppressions.get(known.suppressed()),
    "suppressions.list": lambda known: resend.Suppressions.list({"limit": 1}),
    "suppressions.remove": lambda known: resend.Suppressions.remove(known.suppressed()),
    "suppressions.batch.add": lambda known: resend.Suppressions.Batch.add({"emails": ["a@gone.test", "b@gone.test"]}),
    "suppressions.batch.remove": lambda known: resend.Suppressions.Batch.remove({"emails": [known.suppressed()]}),
    "apiKeys.create": Known.key,
    "apiKeys.list": lambda known: resend.ApiKeys.list(),
    "apiKeys.remove": lambda known: resend.ApiKeys.remove(known.key()),
    "templates.create": Known.draft,
    "templates.get": lambda known: resend.Templates.get(known.draft()),
    "templates.list": lambda known: resend.Templates.list({"limit": 1}),
    "templates.update": lambda known: resend.Templates.update({"id": known.draft(), "html": "<p>Hello</p>"}),
    "templates.publish": lambda known: resend.Templates.publish(known.draft()),
    "templates.duplicate": lambda known: resend.Templates.duplicate(known.draft()),
    "templates.remove": lambda known: resend.Templates.remove(known.draft()),
    "logs.list": lambda known: resend.Logs.list({"limit": 1}),
    "logs.get": lambda known: resend.Logs.get(until(lambda: resend.Logs.list()["data"])[0]["id"]),
}
# The call, the error's name, and a part of our reason.
REFUSED: dict[str, tuple[Try, str, str]] = {
    "emails.share": (lambda known: resend.Emails.share(known.email), "not_found", "no public pages"),
    "emails.metrics": (lambda known: resend.Emails.metrics(), "not_found", "there is no such call"),
    "domains.claims.create": (
        lambda known: resend.Domains.Claims.create({"name": "acme.test"}),
        "not_found",
        "whose records are in its DNS",
    ),
    "apiKeys.update": (
        lambda known: resend.ApiKeys.update({"id": known.key(), "name": "other"}),
        "validation_error",
        "keeps its name",
    ),
    "audiences.list": (lambda known: resend.Audiences.list(), "not_found", "no lists of contacts"),
    "contacts.list": (lambda known: resend.Contacts.list(), "not_found", "no lists of contacts"),
    "contactProperties.list": (lambda known: resend.ContactProperties.list(), "not_found", "no lists of contacts"),
    "segments.list": (lambda known: resend.Segments.list(), "not_found", "no lists of contacts"),
    "topics.list": (lambda known: resend.Topics.list(), "not_found", "no lists of contacts"),
    "broadcasts.list": (lambda known: resend.Broadcasts.list(), "not_found", "sends no broadcasts"),
    "automations.list": (lambda known: resend.Automations.list(), "not_found", "no automations"),
    "events.list": (lambda known: resend.Events.list(), "not_found", "no automations"),
    "inboxes.list": (lambda known: resend.Inboxes.list(), "not_found", "Received mail is read"),
    "oauthGrants.list": (lambda known: resend.OAuthGrants.list(), "not_found", "no such accounts"),
    "usage.get": (lambda known: resend.Usage.get(), "not_found", "GET /v1/me"),
}
