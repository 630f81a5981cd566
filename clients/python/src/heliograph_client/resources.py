"""The calls, named as the URLs are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from heliograph_client import params as p
from heliograph_client import results as r
from heliograph_client._ask import Ask, K, Resource, call, fields, paged, path

if TYPE_CHECKING:
    from typing_extensions import Unpack

M = TypeVar("M", bound=r.Message)


def _send(read: Any, where: str, body: Any, key: str | None) -> Ask[Any]:
    """A key of its own where none is given: its retries send nothing twice."""
    return Ask(read, "POST", where, body=body, idempotency_key=key or str(uuid4()))


def _send_batch(at: str, messages: Sequence[Any], mode: str, key: str | None) -> Ask[r.SentBatch]:
    return _send(r.SentBatch, path(at, "batch"), {"messages": [*map(fields, messages)], "mode": mode}, key)


class _Named(Resource[K]):
    """At `/v1/` and its name."""

    _at: ClassVar[str]


class _Listed(_Named[K]):
    _cursor: ClassVar[str] = "id"

    @paged
    def list(self, **page: Unpack[p.Page]) -> Ask[r.Result]:
        return Ask(r.Result, "GET", path(self._at), query=page, cursor=self._cursor)


class _Read(_Named[K]):
    @call
    def get(self, id: str) -> Ask[r.Result]:
        return Ask(r.Result, "GET", path(self._at, id))


class _Deleted(_Named[K]):
    @call
    def delete(self, id: str) -> Ask[r.Result]:
        return Ask(r.Result, "DELETE", path(self._at, id))


class _Rotated(_Named[K]):
    @call
    def rotate(self, id: str) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path(self._at, id, "rotate"))


class _Messages(_Named[K], Generic[K, M]):
    _kind: ClassVar[Any]

    @paged
    def list(self, **filters: Unpack[p.Filters]) -> Ask[M]:
        """Newest first."""
        return Ask(self._kind, "GET", path(self._at), query=filters)

    @call
    def get(self, id: str) -> Ask[M]:
        """With its recipients and its timeline."""
        return Ask(self._kind, "GET", path(self._at, id))

    @call
    def reschedule(self, id: str, *, scheduled_at: str | datetime) -> Ask[M]:
        return Ask(self._kind, "PATCH", path(self._at, id), body={"scheduled_at": scheduled_at})

    @call
    def cancel(self, id: str) -> Ask[M]:
        return Ask(self._kind, "POST", path(self._at, id, "cancel"))


class Emails(_Messages[K, r.Email]):
    _at, _kind = "emails", r.Email

    @call
    def send(self, *, idempotency_key: str | None = None, **email: Unpack[p.EmailParams]) -> Ask[r.Email]:
        return _send(r.Email, path(self._at), email, idempotency_key)

    @call
    def preview(self, **email: Unpack[p.EmailParams]) -> Ask[r.Preview]:
        return Ask(r.Preview, "POST", path(self._at), query={"dry_run": "true"}, body=email)

    @call
    def send_batch(
        self, messages: Sequence[p.EmailParams], *, mode: p.Mode = "strict", idempotency_key: str | None = None
    ) -> Ask[r.SentBatch]:
        """Up to 500 in one transaction."""
        return _send_batch(self._at, messages, mode, idempotency_key)


class _Phone(_Messages[K, r.Message]):
    _kind = r.Message

    @call
    def send(self, *, idempotency_key: str | None = None, **message: Unpack[p.PhoneParams]) -> Ask[r.Message]:
        return _send(r.Message, path(self._at), message, idempotency_key)

    @call
    def preview(self, **message: Unpack[p.PhoneParams]) -> Ask[r.Preview]:
        return Ask(r.Preview, "POST", path(self._at), query={"dry_run": "true"}, body=message)

    @call
    def send_batch(
        self, messages: Sequence[p.PhoneParams], *, mode: p.Mode = "strict", idempotency_key: str | None = None
    ) -> Ask[r.SentBatch]:
        """Up to 500 in one transaction."""
        return _send_batch(self._at, messages, mode, idempotency_key)


class Sms(_Phone[K]):
    _at = "sms"


class Whatsapp(_Phone[K]):
    _at = "whatsapp"


class Batches(Resource[K]):
    @call
    def get(self, id: str) -> Ask[r.Batch]:
        return Ask(r.Batch, "GET", path("batches", id))


class Verify(Resource[K]):
    @call
    def start(self, *, idempotency_key: str | None = None, **given: Unpack[p.VerifyParams]) -> Ask[r.Verification]:
        return _send(r.Verification, path("verify"), given, idempotency_key)

    @call
    def check(self, id: str, *, code: str) -> Ask[r.Check]:
        return Ask(r.Check, "POST", path("verify", id, "check"), body={"code": code})

    @call
    def resend(self, id: str, *, idempotency_key: str | None = None) -> Ask[r.Verification]:
        return _send(r.Verification, path("verify", id, "resend"), {}, idempotency_key)

    @call
    def cancel(self, id: str) -> Ask[r.Verification]:
        return Ask(r.Verification, "POST", path("verify", id, "cancel"))

    @paged
    def list(self, **filters: Unpack[p.Filters]) -> Ask[r.Verification]:
        return Ask(r.Verification, "GET", path("verify"), query=filters)

    @call
    def get(self, id: str) -> Ask[r.Verification]:
        return Ask(r.Verification, "GET", path("verify", id))


class _Drafted(_Listed[K], _Read[K]):
    """Written as drafts; what is approved stays in use until the draft is."""

    @call
    def submit(self, id: str) -> Ask[r.Result]:
        """Ask an operator to approve the draft."""
        return Ask(r.Result, "POST", path(self._at, id, "submit"))

    @call
    def archive(self, id: str) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path(self._at, id, "archive"))

    @paged
    def versions(self, id: str, **page: Unpack[p.Page]) -> Ask[r.Result]:
        """Newest first."""
        return Ask(r.Result, "GET", path(self._at, id, "versions"), query=page, cursor="version")


class Templates(_Drafted[K]):
    _at = "templates"

    @call
    def create(self, **template: Unpack[p.TemplateParams]) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path(self._at), body=template)

    @call
    def update(self, id: str, **changes: Unpack[p.TemplateChanges]) -> Ask[r.Result]:
        return Ask(r.Result, "PATCH", path(self._at, id), body=changes)

    @call
    def render(
        self, id: str, *, variables: dict[str, Any] | None = None, to: str | None = None, locale: str | None = None
    ) -> Ask[r.Result]:
        body = {"variables": variables, "to": to, "locale": locale}
        return Ask(r.Result, "POST", path(self._at, id, "render"), body=body)


class Layouts(_Drafted[K]):
    _at = "layouts"

    @call
    def create(self, **layout: Unpack[p.LayoutParams]) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path(self._at), body=layout)

    @call
    def update(self, id: str, **changes: Unpack[p.LayoutParams]) -> Ask[r.Result]:
        return Ask(r.Result, "PATCH", path(self._at, id), body=changes)


class Inbox(Resource[K]):
    """The test inbox of a sandbox team."""

    @paged
    def list(self, **filters: Unpack[p.InboxFilters]) -> Ask[r.InboxMessage]:
        return Ask(r.InboxMessage, "GET", path("inbox"), query=filters, towards="before")

    @call
    def get(self, id: str) -> Ask[r.InboxMessage]:
        return Ask(r.InboxMessage, "GET", path("inbox", id))

    @call
    def wait(self, *, timeout: int = 30, **filters: Unpack[p.InboxFilters]) -> Ask[r.InboxMessage | None]:
        """The newest message as soon as there is one; None when there is none after `timeout` seconds (at most 30)."""
        query = {"limit": 1, "wait": timeout, **filters}
        return Ask(_first, "GET", path("inbox"), query=query, wait_s=timeout)


def _first(raw: Any) -> r.InboxMessage | None:
    return r.InboxMessage(raw["data"][0]) if raw["data"] else None


class Clock(Resource[K]):
    """The test clock of a sandbox team."""

    @call
    def get(self) -> Ask[r.Result]:
        return Ask(r.Result, "GET", path("test-clock"))

    @call
    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> Ask[r.Result]:
        """Returns when everything that became due is done; `settled` is False when that takes longer than 30 s."""
        ahead = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        body = {"advance_s": round(ahead.total_seconds())}
        return Ask(r.Result, "POST", path("test-clock"), body=body, wait_s=30)


class Received(_Listed[K], _Read[K]):
    """What came in."""

    _at = "received"

    @call
    def raw(self, id: str) -> Ask[bytes]:
        """The mail as received (MIME)."""
        return Ask(_whole, "GET", path(self._at, id, "raw"), is_file=True)

    @call
    def attachment(self, id: str, attachment: str) -> Ask[bytes]:
        return Ask(_whole, "GET", path(self._at, id, "attachments", attachment), is_file=True)


def _whole(raw: Any) -> bytes:
    assert isinstance(raw, bytes)
    return raw


class Suppressions(_Listed[K], _Read[K], _Deleted[K]):
    """Their ids are the addresses."""

    _at, _cursor = "suppressions", "email"

    @call
    def create(self, *, email: str, reason: str | None = None) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path(self._at), body={"email": email, "reason": reason})


class OptOuts(_Listed[K]):
    """Phones that want no more texts; without `channel`, of both channels."""

    _at = "opt-outs"

    @call
    def create(self, *, phone: str, channel: str) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path(self._at), body={"phone": phone, "channel": channel})

    @call
    def get(self, phone: str, **which: Unpack[p.OfChannel]) -> Ask[r.Result]:
        return Ask(r.Result, "GET", path(self._at, phone), query=which)

    @call
    def delete(self, phone: str, **which: Unpack[p.OfChannel]) -> Ask[r.Result]:
        return Ask(r.Result, "DELETE", path(self._at, phone), query=which)


class Unsubscribes(_Listed[K]):
    """Addresses that unsubscribed from a category; without `category`, from any."""

    _at = "unsubscribes"

    @call
    def create(self, *, address: str, category: str) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path(self._at), body={"address": address, "category": category})

    @call
    def get(self, address: str, **which: Unpack[p.OfCategory]) -> Ask[r.Result]:
        return Ask(r.Result, "GET", path(self._at, address), query=which)

    @call
    def delete(self, address: str, **which: Unpack[p.OfCategory]) -> Ask[r.Result]:
        return Ask(r.Result, "DELETE", path(self._at, address), query=which)


class Domains(_Listed[K], _Read[K], _Rotated[K]):
    _at = "domains"

    @call
    def create(
        self,
        *,
        name: str,
        brand: str | None = None,
        dkim: str | None = None,
        private_key: str | None = None,
        selector: str | None = None,
    ) -> Ask[r.Result]:
        key = {"dkim": dkim, "private_key": private_key, "selector": selector}
        return Ask(r.Result, "POST", path(self._at), body={"name": name, "brand": brand, **key})

    @call
    def check(self, id: str) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path(self._at, id, "check"))

    @call
    def reports(self, id: str, *, first_day: str | None = None, last_day: str | None = None) -> Ask[r.Result]:
        days = {"from": first_day, "to": last_day}
        query = {name: day for name, day in days.items() if day}
        return Ask(r.Result, "GET", path(self._at, id, "reports"), query=query)


class Keys(_Listed[K], _Rotated[K], _Deleted[K]):
    _at = "keys"

    @call
    def create(self, **key: Unpack[p.KeyParams]) -> Ask[r.Result]:
        """Only this answer has its `token`."""
        return Ask(r.Result, "POST", path(self._at), body=key)


class Webhooks(_Listed[K], _Read[K], _Rotated[K], _Deleted[K]):
    _at = "webhooks"

    @call
    def create(self, **webhook: Unpack[p.WebhookParams]) -> Ask[r.Result]:
        """Only this answer has its `secret`."""
        return Ask(r.Result, "POST", path(self._at), body=webhook)

    @call
    def update(self, id: str, **changes: Unpack[p.WebhookChanges]) -> Ask[r.Result]:
        return Ask(r.Result, "PATCH", path(self._at, id), body=changes)

    @call
    def test(self, id: str) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path(self._at, id, "test"))

    @call
    def replay(self, id: str, **which: Unpack[p.ReplayParams]) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path(self._at, id, "replay"), body=which)

    @paged
    def deliveries(self, id: str, **page: Unpack[p.Page]) -> Ask[r.Result]:
        return Ask(r.Result, "GET", path(self._at, id, "deliveries"), query=page, cursor="event_id")


class Events(Resource[K]):
    @paged
    def list(self, **page: Unpack[p.Page]) -> Ask[r.Event]:
        """Oldest first, to the end."""
        return Ask(r.Event, "GET", path("events"), query=page)

    @paged
    def follow(self, *, after: str | None = None, poll_s: float = 1.0) -> Ask[r.Event]:
        """Without an end: what came after this event's id, then whatever comes. Keep the last id you are done with."""
        query = {"limit": 100} | ({"after": after} if after else {})
        return Ask(r.Event, "GET", path("events"), query=query, poll_s=poll_s)


class Approvals(Resource[K]):
    """Messages of all teams that wait for approval; it needs a platform key."""

    @paged
    def list(self, **page: Unpack[p.Page]) -> Ask[r.Result]:
        return Ask(r.Result, "GET", path("approvals"), query=page)

    @call
    def approve(self, id: str, by: str) -> Ask[r.Result]:
        """Release a message; `by` says who decided."""
        return Ask(r.Result, "POST", path("approvals", id, "approve"), body={"by": by})

    @call
    def reject(self, id: str, by: str) -> Ask[r.Result]:
        return Ask(r.Result, "POST", path("approvals", id, "reject"), body={"by": by})


class Audit(Resource[K]):
    @paged
    def list(self, **page: Unpack[p.AuditPage]) -> Ask[r.Result]:
        """The audit log, newest first; it needs a platform key."""
        return Ask(r.Result, "GET", path("audit"), query=page)
