"""Keyword arguments of the calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

Mode = Literal["strict", "permissive"]


class Attachment(TypedDict, total=False):
    filename: str
    content: str | bytes  # base64 as str, or the content as bytes
    content_type: str
    content_id: str


class Options(TypedDict, total=False):
    """Optional fields of every send."""

    tags: Mapping[str, str] | None
    metadata: Mapping[str, Any] | None
    scheduled_at: str | datetime | None
    expires_at: str | datetime | None
    priority: Literal["critical", "normal", "bulk"] | None
    locale: str | None  # such as de-AT


class EmailParams(Options, total=False):
    to: str | Sequence[str]
    cc: Sequence[str] | None
    bcc: Sequence[str] | None
    reply_to: str | Sequence[str] | None
    from_: str | None
    from_display_id: str | None
    subject: str | None
    html: str | None
    text: str | None
    template_id: str | None
    variables: Mapping[str, Any] | None
    category: str | None
    headers: Mapping[str, str] | None
    attachments: Sequence[Attachment] | None
    replies: bool | None


class PhoneParams(Options, total=False):
    to: str
    template_id: str
    variables: Mapping[str, Any] | None
    brand_domain_id: str | None


class VerifyParams(TypedDict, total=False):
    to: str
    channel: str | Sequence[str] | None
    locale: str | None
    tags: Mapping[str, str] | None
    metadata: Mapping[str, Any] | None


class Filters(TypedDict, total=False):
    """Filters of lists. `limit`: items per page."""

    limit: int
    after: str
    status: str
    to: str
    created_after: str
    created_before: str
    template_id: str
    tag: str  # name:value


class Page(TypedDict, total=False):
    limit: int
    after: str


class AuditPage(TypedDict, total=False):
    limit: int
    after: int
    team: str


class OfCategory(TypedDict, total=False):
    category: str


class OfChannel(TypedDict, total=False):
    channel: str


class InboxFilters(TypedDict, total=False):
    to: str
    channel: str
    after: str


class WebhookParams(TypedDict, total=False):
    url: str
    events: Sequence[str]
    secret: str | None
    description: str | None
    format: str | None


class WebhookChanges(TypedDict, total=False):
    url: str | None
    events: Sequence[str] | None
    enabled: bool | None
    description: str | None
    format: str | None


class ReplayParams(TypedDict, total=False):
    event_id: str
    event_ids: Sequence[str]
    created_after: str
    created_before: str
    failed_only: bool


class KeyParams(TypedDict, total=False):
    name: str
    scopes: Sequence[str] | None
    domain: str | None
    expires_at: str | None
    hook: bool | None
    networks: Sequence[str] | None
    passthrough: str | None
    restrictions: Mapping[str, Any] | None


class TemplateChanges(TypedDict, total=False):
    name: str | None
    subject: str | None
    html: str | None
    text: str | None
    body: str | None
    category: str | None
    language: str | None
    upstream_name: str | None
    variables: Sequence[str | Mapping[str, Any]] | None
    optional: Sequence[str] | None
    locale: str | None
    locales: Mapping[str, Mapping[str, str]] | None
    timezone: str | None
    layout: str | None
    examples: Mapping[str, str] | None


class TemplateParams(TemplateChanges, total=False):
    channel: str


class LayoutParams(TypedDict, total=False):
    name: str | None
    html: str | None
    text: str | None
