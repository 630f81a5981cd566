"""POST /v1/emails: one email to up to fifty recipients, direct or from a template (spec 4.1)."""

import hashlib
from typing import Annotated, Any

import msgspec
import pybase64
from msgspec.structs import replace

from heliograph.accept.context import Context, approval_deadline, initial_status
from heliograph.domain.delivery import lanes, magic_recipients
from heliograph.domain.delivery.content import EmailContent, File, split_email_content
from heliograph.domain.delivery.message_states import STATES_BY_CHANNEL
from heliograph.domain.field_docs import (
    LANGUAGE_DOC,
    LAYOUT_VERSION_DOC,
    SCHEMA_REF_PREFIX,
    VERSION_DOC,
    Addresses,
    AttachmentsCount,
    Bcc,
    Cc,
    CreatedAt,
    DryRun,
    EmailAddress,
    Html,
    Id,
    Price,
    RecipientCount,
    ReplyTo,
    Sandbox,
    Subject,
    TemplateId,
    Text,
    To,
    Variables,
    describe,
    schema_limits,
    with_example,
)
from heliograph.domain.ids import id_pattern, timestamp
from heliograph.domain.limits import (
    ATTACHMENTS_MAX,
    BLOB_MIN,
    PARSE_IN_THREAD_MIN,
    REPLY_TO_MAX,
    SHARED_CONTENT_MIN,
    SUBJECT_MAX,
)
from heliograph.domain.mail import verp
from heliograph.domain.mail.attachments import (
    Attachment,
    check_items,
    configured_extra_types,
    parse_attachments,
    total_content_length,
)
from heliograph.domain.mail.feedback_id import DIRECT, feedback_id_suffix
from heliograph.domain.mail.recipients import Recipients, check_allowed, parse_recipients, remove_suppressed
from heliograph.domain.mail.reputation import check_direct_sends
from heliograph.domain.mail.sender import Sender, brand_values, resolve_brand_domain, resolve_sender
from heliograph.domain.mail.unsubscribe import (
    PLACEHOLDER,
    UnsubscribeLink,
    check_category,
    insert_url,
    link_url,
    sign_link,
)
from heliograph.domain.refusals import InvalidRequest, MissingBody, MixedSendMode, RecipientUnsubscribed, SubjectTooLong
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import (
    Acceptance,
    AcceptedRecipient,
    AcceptState,
    Decision,
    IdempotencyKey,
    SendResult,
    SharedText,
)
from heliograph.domain.sending.key_limits import count_use
from heliograph.domain.sending.send_options import (
    ExtraFields,
    MailHeaders,
    SendOptions,
    Timing,
    build_extra_fields,
    check_mail_headers,
    parse_options,
)
from heliograph.domain.setup.key_restrictions import check_addresses, check_channel, check_sender, check_template_use
from heliograph.domain.setup.records import Caller, Key, Layout, Platform, Team, Template
from heliograph.domain.setup.snapshot import Setup, verifying_team
from heliograph.runtime.threads import ACCEPT_POOL, READ_POOL
from heliograph.templates.policy.check import find_template
from heliograph.templates.policy.locales import localize, read_locale
from heliograph.templates.policy.render import Rendered, check_subject, estimate_octets, octets, render
from heliograph.templates.policy.values import (
    Values,
    check_size,
    check_variables,
    check_variables_size,
    iterate_texts,
    read_variables,
    with_unsubscribe_url,
)

Files = Annotated[list[Any], schema_limits(items={"$ref": f"{SCHEMA_REF_PREFIX}Attachment"}, maxItems=ATTACHMENTS_MAX)]
OneLine = Annotated[str, schema_limits(maxLength=SUBJECT_MAX, pattern=r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$")]
DisplayNameId = Annotated[str, schema_limits(pattern=id_pattern("display_name"))]
TO_DOC = describe("One address or a list. To, Cc and Bcc together have at most 50.", needed=True)
BCC_DOC = describe("Bcc addresses, up to 50; they are in no header, and suppressed ones are dropped.")
REPLY_TO_LIMITS = schema_limits(minItems=1, maxItems=REPLY_TO_MAX)
REPLY_TO_DOC = describe("Sets the Reply-To header: one address, or a list of up to 10.")
REPLIES_DOC = describe(
    "`true` sets a signed Reply-To: replies are reported as `email.received` with this mail's id in `in_reply_to`. "
    "The team has an inbound address on a wildcard. Not together with `reply_to`."
)
FROM_DOC = describe(
    "`you@your-domain` or `Name <you@your-domain>`. Needed in live mode; a sandbox team leaves it out or sends the "
    "platform sender."
)
DISPLAY_NAME_DOC = describe("`dn_` id of an approved display name of the sending domain.")
CATEGORY_DOC = describe(
    "One of the team's categories: the email gets unsubscribe headers, and is refused if its recipient has "
    "unsubscribed. It has one recipient. Default: the template's category.",
    example="newsletter",
)
TEMPLATE_DOC = describe("`tpl_` id of an email template, in place of `subject`, `html` and `text`.")


class EmailRequest(SendOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Optional in the schema: a missing `to` is rejected with `invalid_email` in the documented order of checks.
    to: Annotated[EmailAddress | Annotated[Addresses, schema_limits(minItems=1)] | None, TO_DOC] = None
    cc: Annotated[Addresses | None, describe("Cc addresses, up to 50.")] = None
    bcc: Annotated[Addresses | None, BCC_DOC] = None
    reply_to: Annotated[EmailAddress | Annotated[Addresses, REPLY_TO_LIMITS] | None, REPLY_TO_DOC] = None
    replies: Annotated[bool | None, REPLIES_DOC] = None
    headers: MailHeaders = None
    attachments: Annotated[Files | None, describe("Up to 20 files, 10 MiB each, 25 MiB together.")] = None
    from_: Annotated[str | None, FROM_DOC] = msgspec.field(default=None, name="from")
    from_display_id: Annotated[DisplayNameId | None, DISPLAY_NAME_DOC] = None
    subject: Annotated[OneLine | None, describe("One line of up to 200 characters. Direct mode only.")] = None
    html: Annotated[str | None, describe("HTML body. Direct mode needs `html`, `text` or both.")] = None
    text: Annotated[str | None, describe("Plain-text body. Direct mode only.")] = None
    template_id: Annotated[TemplateId | None, TEMPLATE_DOC] = None
    variables: Variables = None
    category: Annotated[str | None, CATEGORY_DOC] = None


class EmailRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The email message of spec 2.1."""

    id: Id
    to: To
    to_addresses: Annotated[
        list[str], describe("The whole To list; its first entry equals `to`.", example=["delivered@simulator.test"])
    ]
    cc: Cc
    bcc: Bcc
    reply_to: ReplyTo
    from_: Annotated[str, describe("The sender's bare address.", example="hello@demo.test")] = msgspec.field(
        name="from"
    )
    subject: Subject
    recipient_count: RecipientCount
    attachments_count: AttachmentsCount
    status: Annotated[
        str, describe("The state of the message.", example="delivered", enum=list(STATES_BY_CHANNEL["email"]))
    ]
    sandbox: Sandbox
    created_at: CreatedAt


class EmailPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Response of a dry run: the message that would be sent, its recipients and its price."""

    dry_run: DryRun = True
    from_: Annotated[str, describe("The From header.", example="hello@demo.test")] = msgspec.field(name="from")
    to: Annotated[list[str], describe("To recipients.", example=["delivered@simulator.test"])]
    cc: Cc
    bcc: Bcc
    reply_to: ReplyTo
    recipient_count: RecipientCount
    subject: Subject
    html: Html
    text: Annotated[Text, with_example("It works.")]
    attachments_count: AttachmentsCount
    template_version: Annotated[int | None, VERSION_DOC]
    layout_version: Annotated[int | None, LAYOUT_VERSION_DOC]
    locale: Annotated[str | None, LANGUAGE_DOC]
    price: Annotated[Price, with_example("0.0000")]
    sandbox: Sandbox


class HeaderOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """Header values that replace those derived from recipients and template, set by compatibility APIs and resends.

    To and Cc may contain display names, and addresses that do not receive this message.
    """

    to: list[str]
    cc: list[str]
    subject: str | None = None  # replaces the template's subject
    sender: str | None = None  # From header exactly as in the request, including the display name
    named: list[str] = []  # To and Cc addresses with a display name, as RFC 5322 name-addrs
    drop_suppressed: bool = False  # drop suppressed To and Cc recipients, as is done for Bcc
    alternatives: tuple[int, ...] = ()  # indexes of attachments that are alternatives to the text


class EmailDraft(msgspec.Struct, frozen=True, kw_only=True):
    """An email after all checks that need no database query."""

    recipients: Recipients
    sender: Sender
    template: Template | None
    content: Rendered
    attachments: tuple[Attachment, ...]
    unsubscribe_url: str = ""  # empty without a category
    reply_domain: str = ""  # domain that receives the replies; empty if replies are not received here
    extra_fields: ExtraFields = ExtraFields()
    timing: Timing = Timing()
    variables: dict[str, Any] | None = None  # as in the request, before defaults and formatting


async def send_email(
    context: Context,
    caller: Caller,
    request: EmailRequest,
    idempotency_key: IdempotencyKey | None,
    header_overrides: HeaderOverrides | None = None,
) -> SendResult[EmailRecord]:
    return await context.store.messages.accept(
        await prepare_email(context, caller, request, idempotency_key, header_overrides)
    )


async def prepare_email(
    context: Context,
    caller: Caller,
    request: EmailRequest,
    idempotency_key: IdempotencyKey | None = None,
    header_overrides: HeaderOverrides | None = None,
) -> Acceptance:
    is_large = estimate_size(caller, request) > PARSE_IN_THREAD_MIN
    draft = (
        await ACCEPT_POOL.run(draft_email, context, caller, request)
        if is_large
        else draft_email(context, caller, request)
    )
    if header_overrides and header_overrides.subject is not None:
        _check_subject(header_overrides.subject)
        draft = replace(draft, content=replace(draft.content, subject=header_overrides.subject))
    if header_overrides and (header_overrides.sender or header_overrides.named):
        draft = replace(
            draft,
            extra_fields=replace(draft.extra_fields, sender_id=header_overrides.sender, named=header_overrides.named),
        )
    files = await _store_files(context, draft.attachments) if draft.attachments else []
    for index in header_overrides.alternatives if header_overrides and files else ():
        files[index] = replace(files[index], alternative=True)
    if is_large:
        id_ = context.clock.new_id("eml_")
        return await ACCEPT_POOL.run(
            email_acceptance, context, caller, draft, files, idempotency_key, header_overrides, id_
        )
    return email_acceptance(context, caller, draft, files, idempotency_key, header_overrides)


def estimate_size(caller: Caller, request: EmailRequest) -> int:
    """Estimate the maximum size of the mail's text and files in bytes, before rendering and decoding."""
    size = len(request.html or "") + len(request.text or "")
    if request.attachments:
        size += total_content_length(request.attachments)
    template = caller.team.templates.get(request.template_id) if request.template_id else None
    if template is None:
        return size
    if template.locales:
        template = localize(template, request.locale)
    layout = caller.team.layouts.get(template.layout) if template.layout else None
    return size + estimate_octets(template, iterate_texts(request.variables), layout)


async def preview_email(context: Context, caller: Caller, request: EmailRequest) -> EmailPreview:
    size, id_ = estimate_size(caller, request), context.clock.new_id("eml_")
    draft = await READ_POOL.run_large(size, draft_email, context, caller, request)
    acceptance = await READ_POOL.run_large(size, email_acceptance, context, caller, draft, [], None, None, id_)
    accepted = await context.store.messages.dry_run(acceptance)
    record: EmailRecord = accepted.record
    return EmailPreview(
        from_=draft.sender.header,
        to=record.to_addresses,
        cc=record.cc,
        bcc=record.bcc,
        reply_to=record.reply_to,
        recipient_count=record.recipient_count,
        subject=record.subject,
        html=draft.content.html,
        text=draft.content.text,
        attachments_count=len(draft.attachments),
        template_version=draft.extra_fields.template_version,
        layout_version=draft.extra_fields.layout_version,
        locale=draft.extra_fields.locale,
        price=pricing.format_money(accepted.price),
        sandbox=record.sandbox,
    )


def draft_email(context: Context, caller: Caller, request: EmailRequest) -> EmailDraft:
    """Run every check that needs no database query, in the order of contract 2."""
    setup = context.store.setup.current
    restricted_key = caller.key if caller.key.restrictions is not None else None
    if restricted_key is not None:
        check_channel(restricted_key, "email")
    if request.attachments:
        check_items(request.attachments)
    variables = read_variables(request.variables)
    locale = read_locale(request.locale) if request.locale is not None else None
    _check_mode(request)
    recipients = parse_recipients(request.to, request.cc, request.bcc, request.reply_to)
    # Whether the template can be sent is checked later.
    template = caller.team.templates.get(request.template_id or "") if request.category is None else None
    category = template.category if template is not None and template.channel == "email" else request.category
    unsubscribe_url = "" if category is None else _make_unsubscribe_url(context, caller, request, recipients, category)
    reply_domain = _find_reply_domain(setup, caller.team, request) if request.replies else ""
    timing = parse_options(request, context.clock.team_now(caller.team.record.ref))
    _check_subject(request.subject)
    if request.headers:
        check_mail_headers(request.headers)
    attachments: tuple[Attachment, ...] = ()
    if request.attachments:
        attachments = parse_attachments(request.attachments, configured_extra_types(setup.platform, caller.team))
    if request.template_id is None:
        check_direct_sends(context.store.reputations.current.get(caller.team.record.id))
    sender = resolve_sender(caller, setup.platform, request.from_, request.from_display_id)
    if restricted_key is not None:
        check_sender(restricted_key, sender.address)
        if request.template_id is None:
            check_template_use(restricted_key, None)
    template, layout, content = _render_content(
        request, variables, locale, caller, sender, setup.platform, unsubscribe_url
    )
    if restricted_key is not None:
        check_addresses(restricted_key, recipients.distinct)
    if not caller.captured:
        check_allowed(recipients, caller.team)
    reply_to_addresses = [address.original for address in recipients.reply_to] if len(recipients.reply_to) > 1 else None
    return EmailDraft(
        recipients=recipients,
        sender=sender,
        template=template,
        content=content,
        attachments=attachments,
        reply_domain=reply_domain,
        extra_fields=build_extra_fields(
            request,
            timing,
            template,
            layout=layout,
            reply_to_addresses=reply_to_addresses,
            headers=request.headers,
            category=category,
        ),
        unsubscribe_url=unsubscribe_url,
        timing=timing,
        variables=request.variables,
    )


def _render_content(
    request: EmailRequest,
    variables: Values,
    locale: str | None,
    caller: Caller,
    sender: Sender,
    platform: Platform,
    unsubscribe_url: str,
) -> tuple[Template | None, Layout | None, Rendered]:
    """Render the content; return the template and the layout, None if not used, and the content."""
    if request.template_id is None:
        html, text = request.html, request.text
        size = octets(html) + octets(text)
        if unsubscribe_url:
            count = sum((part or "").count(PLACEHOLDER) for part in (html, text))
            size += count * (len(unsubscribe_url) - len(PLACEHOLDER))
        check_size(size, "html and text have", param="html")
        if unsubscribe_url:
            html, text = insert_url(html, unsubscribe_url), insert_url(text, unsubscribe_url)
        return None, None, Rendered(subject=request.subject, html=html, text=text, body=None)
    team = caller.team
    template = find_template(team, request.template_id, "email", caller.key if caller.key.restrictions else None)
    if locale is not None:
        template = localize(template, locale)
    layout = team.layouts.get(template.layout) if template.layout is not None else None
    check_variables(template, variables)
    check_variables_size(request.variables)
    if unsubscribe_url:
        variables = with_unsubscribe_url(template, variables, unsubscribe_url)
    domain = sender.domain or resolve_brand_domain(team, caller.key, None)  # the platform sender has no team domain
    content = render(template, variables, brand_values(domain, platform), layout)
    check_subject(content.subject or "")
    return template, layout, content


def _make_unsubscribe_url(
    context: Context, caller: Caller, request: EmailRequest, recipients: Recipients, category: str
) -> str:
    """Return the recipient's unsubscribe URL; refuse an invalid category, and a category with several recipients."""
    team = caller.team
    check_category(category, team.record.categories)
    if len(recipients.distinct) > 1:
        raise InvalidRequest(
            "An email with a category has one recipient, so that its unsubscribe link is theirs. Send one email each.",
            param="category",
        )
    template = team.templates.get(request.template_id) if request.template_id else None
    locale = localize(template, read_locale(request.locale)).locale if template else ""
    address, _ = recipients.distinct[0]
    link = UnsubscribeLink(team=team.record.id, address=address.normal, category=category, locale=locale)
    return link_url(context.base_url, sign_link(context.reply_key, link))


def _find_reply_domain(setup: Setup, team: Team, request: EmailRequest) -> str:
    """Return the team's verified wildcard inbound domain for replies, preferably one within the sender's domain."""
    if request.reply_to:
        raise InvalidRequest("replies sets the Reply-To: remove reply_to, or replies.", param="replies")
    domains = sorted(inbound.removeprefix("*@") for inbound in team.inbound if inbound.startswith("*@"))
    verified_domains = [name for name in domains if verifying_team(setup.verified, name) == team.record.id]
    if not verified_domains:
        raise InvalidRequest(
            "replies needs an inbound address on a wildcard, such as *@in.acme.test ([[teams.inbound]]), of a domain "
            "that the team has verified.",
            param="replies",
        )
    sender_domain = (request.from_ or "").rpartition("@")[2].rstrip("> ").lower()
    return next((name for name in verified_domains if f".{name}".endswith(f".{sender_domain}")), verified_domains[0])


def _check_mode(request: EmailRequest) -> None:
    direct_fields = (request.subject, request.html, request.text)
    if request.template_id is not None:
        if any(field is not None for field in direct_fields):
            raise MixedSendMode(param="template_id")
        return
    if not (request.subject or "").strip():
        raise MissingBody(f"subject is missing or blank. {MissingBody.fix}", param="subject")
    if not (request.html or request.text):
        raise MissingBody(f"Both 'html' and 'text' are missing or empty. {MissingBody.fix}", param="html")
    if request.variables:
        raise InvalidRequest("variables need a template_id. Add it, or remove variables.", param="variables")
    if request.locale is not None:
        raise InvalidRequest("locale needs a template_id. Add it, or remove locale.", param="locale")


def _check_subject(subject: str | None) -> None:
    if subject is None:
        return
    if len(subject) > SUBJECT_MAX:
        raise SubjectTooLong(
            f"The subject has {len(subject)} characters, the maximum is {SUBJECT_MAX}. {SubjectTooLong.fix}",
            param="subject",
        )
    check_subject(subject)


async def _store_files(context: Context, attachments: tuple[Attachment, ...]) -> list[File]:
    """Store large attachments as blobs, durably before the transaction that refers to them."""
    files = []
    for attachment in attachments:
        size = len(attachment.content)
        blob, base64 = None, None
        if size > BLOB_MIN:
            blob = await context.store.attachments.put(attachment.content)
        else:
            base64 = pybase64.b64encode(attachment.content).decode()
        files.append(
            File(
                filename=attachment.filename,
                content_type=attachment.content_type,
                size=size,
                base64=base64,
                blob=blob,
                content_id=attachment.content_id,
            )
        )
    return files


def email_acceptance(
    context: Context,
    caller: Caller,
    draft: EmailDraft,
    files: list[File],
    idempotency_key: IdempotencyKey | None,
    header_overrides: HeaderOverrides | None = None,
    id_: str = "",
) -> Acceptance:
    """Build the acceptance of an email: what to store, and the checks of the transaction.

    In a thread, pass `id_`: ids can be generated only on the event loop.
    """
    team, now, id_ = caller.team, context.clock.team_now(caller.team.record.ref), id_ or context.clock.new_id("eml_")
    template, approval_expires_at = draft.template, None
    if caller.key.restrictions is not None:
        approval_expires_at = approval_deadline(caller, draft.timing, now)
    status = initial_status(context, draft.timing, now) if approval_expires_at is None else "queued"
    reply_to = [address.original for address in draft.recipients.reply_to] if draft.recipients.reply_to else []
    if draft.reply_domain:
        reply_to = [verp.sign_reply_address(context.reply_key, id_, team.record.id, draft.reply_domain)]
    suffix = feedback_id_suffix(context.reply_key, team.record.id, from_template=template is not None)
    feedback_id = f"{draft.extra_fields.category or (template.id if template else DIRECT)}:{suffix}"
    stored, shared = _encode_content(draft, files, reply_to, header_overrides, feedback_id, may_share=team.sandbox)
    pending = PendingEmail(
        id=id_,
        created_at=now,
        status=status,
        team=team,
        draft=draft,
        reply_to=reply_to,
        file_count=len(files),
        drop_suppressed=header_overrides is not None and header_overrides.drop_suppressed,
        restricted_key=caller.key if caller.key.restrictions is not None else None,
    )
    return Acceptance(
        id=id_,
        team=team.record.ref,
        channel="email",
        lane=lanes.LANE_BY_CHANNEL["email"],
        status=status,
        sandbox=team.sandbox,
        captured=caller.captured or team.simulated,
        key_id=caller.key.id,
        created_at=now,
        credit_low=team.record.credit_low,
        content=stored,
        shared=shared,
        variables_bytes=len(msgspec.json.encode(draft.variables)) if draft.variables else 0,
        decide=pending.decide,
        template_id=template.id if template else None,
        template_version=template.version if template else None,
        category=draft.extra_fields.category,
        suppression_addresses=[address.normal for address, _ in draft.recipients.distinct],
        blobs=sorted({file.blob for file in files if file.blob}) if files else (),
        file_bytes=sum(file.size for file in files if file.blob) if files else 0,
        daily_bytes_limit=team.record.daily_bytes_limit,
        idempotency_key=idempotency_key,
        audit=caller.entry(id_) if caller.entry else None,
        timing=draft.timing,
        approval_expires_at=approval_expires_at,
        extra_fields=draft.extra_fields,
    )


class PendingEmail(msgspec.Struct, frozen=True, kw_only=True):
    """An email whose suppressions, quota and credit are checked in the accept transaction."""

    id: str
    created_at: int
    status: str
    team: Team
    draft: EmailDraft
    reply_to: list[str]
    file_count: int
    drop_suppressed: bool
    restricted_key: Key | None = None

    def decide(self, state: AcceptState) -> Decision:
        draft, team = self.draft, self.team
        deliverable = remove_suppressed(draft.recipients, state.suppressed, drop=self.drop_suppressed)
        if state.unsubscribed:
            address = deliverable.to[0]
            raise RecipientUnsubscribed(
                f"{address.original} has unsubscribed from {draft.extra_fields.category}. {RecipientUnsubscribed.fix}",
                param="to",
                details={"addresses": [address.original]},
            )
        price = _price(team, draft.template, deliverable, state, self.created_at)
        if self.restricted_key is not None:
            count_use(state.account, self.restricted_key, deliverable.count, price, self.created_at)
        if price:
            pricing.hold(state.account, price)
        record = EmailRecord(
            id=self.id,
            to=deliverable.to[0].original,
            to_addresses=[address.original for address in deliverable.to],
            cc=[address.original for address in deliverable.cc] if deliverable.cc else [],
            bcc=[address.original for address in deliverable.bcc] if deliverable.bcc else [],
            reply_to=self.reply_to[0] if self.reply_to else None,
            from_=draft.sender.address.original,
            subject=draft.content.subject or "",
            recipient_count=deliverable.count,
            attachments_count=self.file_count,
            status=self.status,
            sandbox=team.sandbox,
            created_at=timestamp(self.created_at),
        )
        recipients = [
            AcceptedRecipient(address.normal, address.original, kind) for address, kind in deliverable.distinct
        ]
        return Decision(msgspec.json.encode(record), recipients, record=record, price=price)


def _encode_content(
    draft: EmailDraft,
    files: list[File],
    reply_to: list[str],
    header_overrides: HeaderOverrides | None,
    feedback_id: str,
    *,
    may_share: bool,
) -> tuple[bytes, SharedText | None]:
    """Encode the content to store.

    If `may_share` is set and the body is larger than SHARED_CONTENT_MIN, the body is returned separately, so that equal
    bodies are stored only once.
    """
    recipients, content = draft.recipients, draft.content
    mail = EmailContent(
        from_name=draft.sender.name,
        from_address=draft.sender.address.original,
        to=header_overrides.to if header_overrides else [address.original for address in recipients.to],
        cc=header_overrides.cc
        if header_overrides
        else [address.original for address in recipients.cc]
        if recipients.cc
        else [],
        reply_to=reply_to or None,
        headers=draft.extra_fields.headers,
        subject=content.subject or "",
        html=content.html,
        text=content.text,
        attachments=files,
        unsubscribe_url=draft.unsubscribe_url,
        feedback_id=feedback_id,
        variables=draft.variables or {},
    )
    stored = msgspec.json.encode(mail)
    if not may_share or len(stored) <= SHARED_CONTENT_MIN:
        return stored, None
    stored, body = split_email_content(mail)
    return stored, SharedText(hashlib.blake2b(body, digest_size=16).digest(), body)


def _price(team: Team, template: Template | None, recipients: Recipients, state: AcceptState, now: int) -> int:
    """Count billable recipients against the monthly quota; return the price of those above the quota (contract 7)."""
    if team.sandbox:
        return 0
    billable = 0
    for address in (*recipients.to, *recipients.cc, *recipients.bcc):
        billable += not (
            address.domain == magic_recipients.SIMULATOR_DOMAIN and magic_recipients.is_magic_email(address.normal)
        )
    if not billable:
        return 0
    if pricing.use_quota(state.account, billable, team.record.email_quota, pricing.month_of(now)):
        return 0
    return pricing.price_for(template, None) if template else 0
