"""The methods of the clients, grouped by resource and named like the URLs of the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from heliograph_client import params as p
from heliograph_client import results as r
from heliograph_client._request import K, Request, Resource, call, fields, paged, path

if TYPE_CHECKING:
    from typing_extensions import Unpack

M = TypeVar("M", bound=r.Message)


def _send(convert: Any, url_path: str, body: Any, key: str | None) -> Request[Any]:
    """Return the request, with a random Idempotency-Key if there is none, so that retries send no duplicates."""
    return Request(convert, "POST", url_path, body=body, idempotency_key=key or str(uuid4()))


def _send_batch(name: str, messages: Sequence[Any], mode: str, key: str | None) -> Request[r.SentBatch]:
    return _send(r.SentBatch, path(name, "batch"), {"messages": [*map(fields, messages)], "mode": mode}, key)


class _Named(Resource[K]):
    """A resource at the path `/v1/{_name}`."""

    _name: ClassVar[str]


class _Listed(_Named[K]):
    _cursor_field: ClassVar[str] = "id"

    @paged
    def list(self, **page: Unpack[p.Page]) -> Request[r.Result]:
        return Request(r.Result, "GET", path(self._name), query=page, cursor_field=self._cursor_field)


class _Read(_Named[K]):
    @call
    def get(self, id: str) -> Request[r.Result]:
        return Request(r.Result, "GET", path(self._name, id))


class _Deleted(_Named[K]):
    @call
    def delete(self, id: str) -> Request[r.Result]:
        return Request(r.Result, "DELETE", path(self._name, id))


class _Rotated(_Named[K]):
    @call
    def rotate(self, id: str) -> Request[r.Result]:
        return Request(r.Result, "POST", path(self._name, id, "rotate"))


class _Messages(_Named[K], Generic[K, M]):
    _result_type: ClassVar[Any]

    @paged
    def list(self, **filters: Unpack[p.Filters]) -> Request[M]:
        """List messages, newest first."""
        return Request(self._result_type, "GET", path(self._name), query=filters)

    @call
    def get(self, id: str) -> Request[M]:
        """Return a message with its recipients and its timeline."""
        return Request(self._result_type, "GET", path(self._name, id))

    @call
    def reschedule(self, id: str, *, scheduled_at: str | datetime) -> Request[M]:
        return Request(self._result_type, "PATCH", path(self._name, id), body={"scheduled_at": scheduled_at})

    @call
    def cancel(self, id: str) -> Request[M]:
        return Request(self._result_type, "POST", path(self._name, id, "cancel"))


class Emails(_Messages[K, r.Email]):
    _name, _result_type = "emails", r.Email

    @call
    def send(self, *, idempotency_key: str | None = None, **email: Unpack[p.EmailParams]) -> Request[r.Email]:
        return _send(r.Email, path(self._name), email, idempotency_key)

    @call
    def preview(self, **email: Unpack[p.EmailParams]) -> Request[r.Preview]:
        return Request(r.Preview, "POST", path(self._name), query={"dry_run": "true"}, body=email)

    @call
    def send_batch(
        self, messages: Sequence[p.EmailParams], *, mode: p.Mode = "strict", idempotency_key: str | None = None
    ) -> Request[r.SentBatch]:
        """Send up to 500 messages in one transaction."""
        return _send_batch(self._name, messages, mode, idempotency_key)


class _Phone(_Messages[K, r.Message]):
    _result_type = r.Message

    @call
    def send(self, *, idempotency_key: str | None = None, **message: Unpack[p.PhoneParams]) -> Request[r.Message]:
        return _send(r.Message, path(self._name), message, idempotency_key)

    @call
    def preview(self, **message: Unpack[p.PhoneParams]) -> Request[r.Preview]:
        return Request(r.Preview, "POST", path(self._name), query={"dry_run": "true"}, body=message)

    @call
    def send_batch(
        self, messages: Sequence[p.PhoneParams], *, mode: p.Mode = "strict", idempotency_key: str | None = None
    ) -> Request[r.SentBatch]:
        """Send up to 500 messages in one transaction."""
        return _send_batch(self._name, messages, mode, idempotency_key)


class Sms(_Phone[K]):
    _name = "sms"


class Whatsapp(_Phone[K]):
    _name = "whatsapp"


class Batches(Resource[K]):
    @call
    def get(self, id: str) -> Request[r.Batch]:
        return Request(r.Batch, "GET", path("batches", id))


class Verify(Resource[K]):
    @call
    def start(
        self, *, idempotency_key: str | None = None, **verification: Unpack[p.VerifyParams]
    ) -> Request[r.Verification]:
        return _send(r.Verification, path("verify"), verification, idempotency_key)

    @call
    def check(self, id: str, *, code: str) -> Request[r.Check]:
        return Request(r.Check, "POST", path("verify", id, "check"), body={"code": code})

    @call
    def resend(self, id: str, *, idempotency_key: str | None = None) -> Request[r.Verification]:
        return _send(r.Verification, path("verify", id, "resend"), {}, idempotency_key)

    @call
    def cancel(self, id: str) -> Request[r.Verification]:
        return Request(r.Verification, "POST", path("verify", id, "cancel"))

    @paged
    def list(self, **filters: Unpack[p.Filters]) -> Request[r.Verification]:
        return Request(r.Verification, "GET", path("verify"), query=filters)

    @call
    def get(self, id: str) -> Request[r.Verification]:
        return Request(r.Verification, "GET", path("verify", id))


class _Drafted(_Listed[K], _Read[K]):
    """Records that are edited as drafts; the approved version stays in use until the draft is approved."""

    @call
    def submit(self, id: str) -> Request[r.Result]:
        """Request an operator to approve the draft."""
        return Request(r.Result, "POST", path(self._name, id, "submit"))

    @call
    def archive(self, id: str) -> Request[r.Result]:
        return Request(r.Result, "POST", path(self._name, id, "archive"))

    @paged
    def versions(self, id: str, **page: Unpack[p.Page]) -> Request[r.Result]:
        """List the versions, newest first."""
        return Request(r.Result, "GET", path(self._name, id, "versions"), query=page, cursor_field="version")


class Templates(_Drafted[K]):
    _name = "templates"

    @call
    def create(self, **template: Unpack[p.TemplateParams]) -> Request[r.Result]:
        return Request(r.Result, "POST", path(self._name), body=template)

    @call
    def update(self, id: str, **changes: Unpack[p.TemplateChanges]) -> Request[r.Result]:
        return Request(r.Result, "PATCH", path(self._name, id), body=changes)

    @call
    def render(
        self, id: str, *, variables: dict[str, Any] | None = None, to: str | None = None, locale: str | None = None
    ) -> Request[r.Result]:
        body = {"variables": variables, "to": to, "locale": locale}
        return Request(r.Result, "POST", path(self._name, id, "render"), body=body)


class Layouts(_Drafted[K]):
    _name = "layouts"

    @call
    def create(self, **layout: Unpack[p.LayoutParams]) -> Request[r.Result]:
        return Request(r.Result, "POST", path(self._name), body=layout)

    @call
    def update(self, id: str, **changes: Unpack[p.LayoutParams]) -> Request[r.Result]:
        return Request(r.Result, "PATCH", path(self._name, id), body=changes)


class Inbox(Resource[K]):
    """The test inbox of a sandbox team."""

    @paged
    def list(self, **filters: Unpack[p.InboxFilters]) -> Request[r.InboxMessage]:
        return Request(r.InboxMessage, "GET", path("inbox"), query=filters, cursor_param="before")

    @call
    def get(self, id: str) -> Request[r.InboxMessage]:
        return Request(r.InboxMessage, "GET", path("inbox", id))

    @call
    def wait(self, *, timeout: int = 30, **filters: Unpack[p.InboxFilters]) -> Request[r.InboxMessage | None]:
        """Wait for a message and return the newest; None after `timeout` seconds (at most 30) without one."""
        query = {"limit": 1, "wait": timeout, **filters}
        return Request(_first, "GET", path("inbox"), query=query, wait_s=timeout)


def _first(raw: Any) -> r.InboxMessage | None:
    return r.InboxMessage(raw["data"][0]) if raw["data"] else None


class Clock(Resource[K]):
    """The test clock of a sandbox team."""

    @call
    def get(self) -> Request[r.Result]:
        return Request(r.Result, "GET", path("test-clock"))

    @call
    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> Request[r.Result]:
        """Advance the clock and wait until all due work is done; `settled` is False if that takes more than 30 s."""
        step = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        body = {"advance_s": round(step.total_seconds())}
        return Request(r.Result, "POST", path("test-clock"), body=body, wait_s=30)


class Received(_Listed[K], _Read[K]):
    """Inbound mail."""

    _name = "received"

    @call
    def raw(self, id: str) -> Request[bytes]:
        """Return the raw mail (MIME)."""
        return Request(_as_bytes, "GET", path(self._name, id, "raw"), is_file=True)

    @call
    def attachment(self, id: str, attachment: str) -> Request[bytes]:
        return Request(_as_bytes, "GET", path(self._name, id, "attachments", attachment), is_file=True)


def _as_bytes(raw: Any) -> bytes:
    assert isinstance(raw, bytes)
    return raw


class Suppressions(_Listed[K], _Read[K], _Deleted[K]):
    """Suppressed addresses; the address is the id."""

    _name, _cursor_field = "suppressions", "email"

    @call
    def create(self, *, email: str, reason: str | None = None) -> Request[r.Result]:
        return Request(r.Result, "POST", path(self._name), body={"email": email, "reason": reason})


class OptOuts(_Listed[K]):
    """Phones that opted out. Without `channel`, a method is about both channels."""

    _name = "opt-outs"

    @call
    def create(self, *, phone: str, channel: str) -> Request[r.Result]:
        return Request(r.Result, "POST", path(self._name), body={"phone": phone, "channel": channel})

    @call
    def get(self, phone: str, **filters: Unpack[p.OfChannel]) -> Request[r.Result]:
        return Request(r.Result, "GET", path(self._name, phone), query=filters)

    @call
    def delete(self, phone: str, **filters: Unpack[p.OfChannel]) -> Request[r.Result]:
        return Request(r.Result, "DELETE", path(self._name, phone), query=filters)


class Unsubscribes(_Listed[K]):
    """Addresses that unsubscribed from a category. Without `category`, a method is about all categories."""

    _name = "unsubscribes"

    @call
    def create(self, *, address: str, category: str) -> Request[r.Result]:
        return Request(r.Result, "POST", path(self._name), body={"address": address, "category": category})

    @call
    def get(self, address: str, **filters: Unpack[p.OfCategory]) -> Request[r.Result]:
        return Request(r.Result, "GET", path(self._name, address), query=filters)

    @call
    def delete(self, address: str, **filters: Unpack[p.OfCategory]) -> Request[r.Result]:
        return Request(r.Result, "DELETE", path(self._name, address), query=filters)


class Domains(_Listed[K], _Read[K], _Rotated[K]):
    _name = "domains"

    @call
    def create(
        self,
        *,
        name: str,
        brand: str | None = None,
        dkim: str | None = None,
        private_key: str | None = None,
        selector: str | None = None,
    ) -> Request[r.Result]:
        key = {"dkim": dkim, "private_key": private_key, "selector": selector}
        return Request(r.Result, "POST", path(self._name), body={"name": name, "brand": brand, **key})

    @call
    def check(self, id: str) -> Request[r.Result]:
        return Request(r.Result, "POST", path(self._name, id, "check"))

    @call
    def reports(self, id: str, *, first_day: str | None = None, last_day: str | None = None) -> Request[r.Result]:
        days = {"from": first_day, "to": last_day}
        query = {name: day for name, day in days.items() if day}
        return Request(r.Result, "GET", path(self._name, id, "reports"), query=query)


class Keys(_Listed[K], _Rotated[K], _Deleted[K]):
    _name = "keys"

    @call
    def create(self, **key: Unpack[p.KeyParams]) -> Request[r.Result]:
        """Create a key. Only this result has its `token`."""
        return Request(r.Result, "POST", path(self._name), body=key)


class Webhooks(_Listed[K], _Read[K], _Rotated[K], _Deleted[K]):
    _name = "webhooks"

    @call
    def create(self, **webhook: Unpack[p.WebhookParams]) -> Request[r.Result]:
        """Create a webhook. Only this result has its `secret`."""
        return Request(r.Result, "POST", path(self._name), body=webhook)

    @call
    def update(self, id: str, **changes: Unpack[p.WebhookChanges]) -> Request[r.Result]:
        return Request(r.Result, "PATCH", path(self._name, id), body=changes)

    @call
    def test(self, id: str) -> Request[r.Result]:
        return Request(r.Result, "POST", path(self._name, id, "test"))

    @call
    def replay(self, id: str, **filters: Unpack[p.ReplayParams]) -> Request[r.Result]:
        return Request(r.Result, "POST", path(self._name, id, "replay"), body=filters)

    @paged
    def deliveries(self, id: str, **page: Unpack[p.Page]) -> Request[r.Result]:
        return Request(r.Result, "GET", path(self._name, id, "deliveries"), query=page, cursor_field="event_id")


class Events(Resource[K]):
    @paged
    def list(self, **page: Unpack[p.Page]) -> Request[r.Event]:
        """List all events, oldest first."""
        return Request(r.Event, "GET", path("events"), query=page)

    @paged
    def follow(self, *, after: str | None = None, poll_s: float = 1.0) -> Request[r.Event]:
        """Yield events after the event id `after`, oldest first, then new events, forever.

        To continue later, store the id of the last event that was processed.
        """
        query = {"limit": 100} | ({"after": after} if after else {})
        return Request(r.Event, "GET", path("events"), query=query, poll_s=poll_s)


class Approvals(Resource[K]):
    """Messages of all teams that wait for approval. Needs a platform key."""

    @paged
    def list(self, **page: Unpack[p.Page]) -> Request[r.Result]:
        return Request(r.Result, "GET", path("approvals"), query=page)

    @call
    def approve(self, id: str, by: str) -> Request[r.Result]:
        """Release a message. `by`: the person who decided."""
        return Request(r.Result, "POST", path("approvals", id, "approve"), body={"by": by})

    @call
    def reject(self, id: str, by: str) -> Request[r.Result]:
        return Request(r.Result, "POST", path("approvals", id, "reject"), body={"by": by})


class Audit(Resource[K]):
    @paged
    def list(self, **page: Unpack[p.AuditPage]) -> Request[r.Result]:
        """List the entries of the audit log, newest first. Needs a platform key."""
        return Request(r.Result, "GET", path("audit"), query=page)
