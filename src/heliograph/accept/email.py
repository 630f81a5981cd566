"""POST /v1/emails: one email to up to fifty recipients, direct or from a template (spec 4.1)."""

import hashlib
from typing import Annotated, Any

import msgspec
import pybase64
from msgspec.structs import replace

from heliograph.accept.context import Context, first_status
from heliograph.domain.delivery import lanes, magic_recipients
from heliograph.domain.delivery.content import EmailContent, File, split_mail
from heliograph.domain.delivery.message_states import STATES
from heliograph.domain.field_docs import (
    LANGUAGE,
    LAYOUT_VERSION,
    REF,
    VERSION,
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
    limited,
    says,
    such_as,
)
from heliograph.domain.ids import id_pattern, timestamp
from heliograph.domain.limits import (
    ATTACHMENTS_MAX,
    BLOB_MIN,
    IN_THREAD,
    REPLY_TO_MAX,
    SHARED_MIN,
    SUBJECT_MAX,
)
from heliograph.domain.mail import verp
from heliograph.domain.mail.attachments import (
    Attachment,
    check_shape,
    more_types,
    read_attachments,
    weigh_files,
)
from heliograph.domain.mail.recipients import Recipients, check_allowed, read_recipients, split_suppressed
from heliograph.domain.mail.reputation import check_direct
from heliograph.domain.mail.sender import Sender, brand_domain, brand_of, resolve_sender
from heliograph.domain.refusals import InvalidRequest, MissingBody, MixedSendMode, SubjectTooLong
from heliograph.domain.sending import pricing
from heliograph.domain.sending.acceptance import (
    Acceptance,
    AcceptedRecipient,
    Decision,
    Found,
    IdempotencyKey,
    Sent,
    SharedText,
)
from heliograph.domain.sending.send_options import (
    Added,
    MailHeaders,
    Options,
    Timing,
    added_of,
    check_mail_headers,
    read_options,
)
from heliograph.domain.setup.records import Caller, Layout, Platform, Team, Template
from heliograph.domain.setup.snapshot import Setup, verified_by
from heliograph.runtime.threads import ACCEPTING, LOOKING
from heliograph.templates.policy.check import find_template
from heliograph.templates.policy.locales import in_locale, read_locale
from heliograph.templates.policy.render import Rendered, check_subject, most_octets, octets, render
from heliograph.templates.policy.values import (
    Values,
    check_size,
    check_size_of_variables,
    check_variables,
    leaf_texts,
    read_variables,
)

Files = Annotated[list[Any], limited(items={"$ref": f"{REF}Attachment"}, maxItems=ATTACHMENTS_MAX)]
OneLine = Annotated[str, limited(maxLength=SUBJECT_MAX, pattern=r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$")]
DisplayNameId = Annotated[str, limited(pattern=id_pattern("display_name"))]
TO = says("One address or a list. To, Cc and Bcc together have at most 50.", needed=True)
BCC = says("Bcc addresses, up to 50; they are in no header, and suppressed ones are dropped.")
REPLIES = limited(minItems=1, maxItems=REPLY_TO_MAX)
REPLY_TO = says("Sets the Reply-To header: one address, or a list of up to 10.")
ANSWERS = says(
    "`true` sets a signed Reply-To: what comes to it is told as `email.received` with this mail's id in `in_reply_to`. "
    "The team has an inbound address on a wildcard. Not together with `reply_to`."
)
FROM = says(
    "`you@your-domain` or `Name <you@your-domain>`. Needed in live mode; a sandbox team leaves it out or sends the "
    "platform sender."
)
DISPLAY_NAME = says("`dn_` id of an approved display name of the sending domain.")
TEMPLATE = says("`tpl_` id of an email template, in place of `subject`, `html` and `text`.")


class EmailRequest(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Optional in the schema: a missing `to` is rejected with `invalid_email` in the documented order of checks.
    to: Annotated[EmailAddress | Annotated[Addresses, limited(minItems=1)] | None, TO] = None
    cc: Annotated[Addresses | None, says("Cc addresses, up to 50.")] = None
    bcc: Annotated[Addresses | None, BCC] = None
    reply_to: Annotated[EmailAddress | Annotated[Addresses, REPLIES] | None, REPLY_TO] = None
    replies: Annotated[bool | None, ANSWERS] = None
    headers: MailHeaders = None
    attachments: Annotated[Files | None, says("Up to 20 files, 10 MiB each, 25 MiB together.")] = None
    from_: Annotated[str | None, FROM] = msgspec.field(default=None, name="from")
    from_display_id: Annotated[DisplayNameId | None, DISPLAY_NAME] = None
    subject: Annotated[OneLine | None, says("One line of up to 200 characters. Direct mode only.")] = None
    html: Annotated[str | None, says("HTML body. Direct mode needs `html`, `text` or both.")] = None
    text: Annotated[str | None, says("Plain-text body. Direct mode only.")] = None
    template_id: Annotated[TemplateId | None, TEMPLATE] = None
    variables: Variables = None


class EmailRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The email message of spec 2.1."""

    id: Id
    to: To
    to_addresses: Annotated[
        list[str], says("The whole To list; its first entry equals `to`.", example=["delivered@simulator.test"])
    ]
    cc: Cc
    bcc: Bcc
    reply_to: ReplyTo
    from_: Annotated[str, says("The sender's bare address.", example="hello@demo.test")] = msgspec.field(name="from")
    subject: Subject
    recipient_count: RecipientCount
    attachments_count: AttachmentsCount
    status: Annotated[str, says("The state of the message.", example="delivered", enum=list(STATES["email"]))]
    sandbox: Sandbox
    created_at: CreatedAt


class EmailPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run answers: what would be sent to whom, and what it would cost."""

    dry_run: DryRun = True
    from_: Annotated[str, says("The From header.", example="hello@demo.test")] = msgspec.field(name="from")
    to: Annotated[list[str], says("To recipients.", example=["delivered@simulator.test"])]
    cc: Cc
    bcc: Bcc
    reply_to: ReplyTo
    recipient_count: RecipientCount
    subject: Subject
    html: Html
    text: Annotated[Text, such_as("It works.")]
    attachments_count: AttachmentsCount
    template_version: Annotated[int | None, VERSION]
    layout_version: Annotated[int | None, LAYOUT_VERSION]
    locale: Annotated[str | None, LANGUAGE]
    price: Annotated[Price, such_as("0.0000")]
    sandbox: Sandbox


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Header values of a mail that differ from its recipients, as foreign APIs and resends need them.

    To and Cc may contain display names, and addresses that do not receive this message.
    """

    to: list[str]
    cc: list[str]
    subject: str | None = None  # replaces the template's subject
    sender: str | None = None  # From header as the caller wrote it, with the display name
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
    replies_to: str = ""  # domain that receives the replies; empty if replies are not received here
    added: Added = Added()
    timing: Timing = Timing()


async def send_email(
    context: Context,
    caller: Caller,
    request: EmailRequest,
    retry_key: IdempotencyKey | None,
    shown: Shown | None = None,
) -> Sent[EmailRecord]:
    return await context.store.messages.accept(await prepare_email(context, caller, request, retry_key, shown))


async def prepare_email(
    context: Context,
    caller: Caller,
    request: EmailRequest,
    retry_key: IdempotencyKey | None = None,
    shown: Shown | None = None,
) -> Acceptance:
    large = weigh_email(caller, request) > IN_THREAD
    draft = (
        await ACCEPTING.run(draft_email, context, caller, request) if large else draft_email(context, caller, request)
    )
    if shown and shown.subject is not None:
        _check_subject(shown.subject)
        draft = replace(draft, content=replace(draft.content, subject=shown.subject))
    if shown and (shown.sender or shown.named):
        draft = replace(draft, added=replace(draft.added, sender_id=shown.sender, named=shown.named))
    files = await _keep_files(context, draft.attachments) if draft.attachments else []
    for number in shown.alternatives if shown and files else ():
        files[number] = replace(files[number], alternative=True)
    if large:
        id_ = context.clock.new_id("eml_")
        return await ACCEPTING.run(email_acceptance, context, caller, draft, files, retry_key, shown, id_)
    return email_acceptance(context, caller, draft, files, retry_key, shown)


def weigh_email(caller: Caller, request: EmailRequest) -> int:
    """Estimate the maximum size of the mail's text and files in bytes, before rendering and decoding."""
    size = len(request.html or "") + len(request.text or "")
    if request.attachments:
        size += weigh_files(request.attachments)
    template = caller.team.templates.get(request.template_id) if request.template_id else None
    if template is None:
        return size
    if template.locales:
        template = in_locale(template, request.locale)
    layout = caller.team.layouts.get(template.layout) if template.layout else None
    return size + most_octets(template, leaf_texts(request.variables), layout)


async def preview_email(context: Context, caller: Caller, request: EmailRequest) -> EmailPreview:
    size, id_ = weigh_email(caller, request), context.clock.new_id("eml_")
    draft = await LOOKING.run_large(size, draft_email, context, caller, request)
    acceptance = await LOOKING.run_large(size, email_acceptance, context, caller, draft, [], None, None, id_)
    accepted = await context.store.messages.rehearse(acceptance)
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
        template_version=draft.added.template_version,
        layout_version=draft.added.layout_version,
        locale=draft.added.locale,
        price=pricing.format_money(accepted.price),
        sandbox=record.sandbox,
    )


def draft_email(context: Context, caller: Caller, request: EmailRequest) -> EmailDraft:
    """Run every check that needs no database query, in the order of contract 2."""
    setup = context.store.setup.current
    if request.attachments:
        check_shape(request.attachments)
    variables = read_variables(request.variables)
    locale = read_locale(request.locale) if request.locale is not None else None
    _check_mode(request)
    recipients = read_recipients(request.to, request.cc, request.bcc, request.reply_to)
    replies_to = _replies_to(setup, caller.team, request) if request.replies else ""
    timing = read_options(request, context.clock.of(caller.team.record.ref))
    _check_subject(request.subject)
    if request.headers:
        check_mail_headers(request.headers)
    attachments: tuple[Attachment, ...] = ()
    if request.attachments:
        attachments = read_attachments(request.attachments, more_types(setup.platform, caller.team))
    if request.template_id is None:
        check_direct(context.store.reputation.current.get(caller.team.record.id))
    sender = resolve_sender(caller, setup.platform, request.from_, request.from_display_id)
    template, layout, content = _content(request, variables, locale, caller, sender, setup.platform)
    if not caller.caught:
        check_allowed(recipients, caller.team)
    several = [address.given for address in recipients.reply_to] if len(recipients.reply_to) > 1 else None
    return EmailDraft(
        recipients=recipients,
        sender=sender,
        template=template,
        content=content,
        attachments=attachments,
        replies_to=replies_to,
        added=added_of(request, timing, template, layout=layout, reply_to_addresses=several, headers=request.headers),
        timing=timing,
    )


def _content(
    request: EmailRequest, variables: Values, locale: str | None, caller: Caller, sender: Sender, platform: Platform
) -> tuple[Template | None, Layout | None, Rendered]:
    """Return the template and layout, if any, and the rendered content."""
    if request.template_id is None:
        check_size(octets(request.html) + octets(request.text), "html and text have", param="html")
        return None, None, Rendered(subject=request.subject, html=request.html, text=request.text, body=None)
    team = caller.team
    template = find_template(team, request.template_id, "email")
    if locale is not None:
        template = in_locale(template, locale)
    layout = team.layouts.get(template.layout) if template.layout is not None else None
    check_variables(template, variables)
    check_size_of_variables(request.variables)
    domain = sender.domain or brand_domain(team, caller.key, None)  # the platform sender has no team domain
    content = render(template, variables, brand_of(domain, platform), layout)
    check_subject(content.subject or "")
    return template, layout, content


def _replies_to(setup: Setup, team: Team, request: EmailRequest) -> str:
    """Return a verified wildcard inbound domain of the team for replies; one of the sender's domain is preferred."""
    if request.reply_to:
        raise InvalidRequest("replies sets the Reply-To: remove reply_to, or replies.", param="replies")
    domains = sorted(one.removeprefix("*@") for one in team.inbound if one.startswith("*@"))
    ours = [name for name in domains if verified_by(setup.verified, name) == team.record.id]
    if not ours:
        raise InvalidRequest(
            "replies needs an inbound address on a wildcard, such as *@in.acme.test ([[teams.inbound]]), of a domain "
            "that the team has verified.",
            param="replies",
        )
    sender = (request.from_ or "").rpartition("@")[2].rstrip("> ").lower()
    return next((name for name in ours if f".{name}".endswith(f".{sender}")), ours[0])


def _check_mode(request: EmailRequest) -> None:
    direct = (request.subject, request.html, request.text)
    if request.template_id is not None:
        if any(field is not None for field in direct):
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
            f"The subject has {len(subject)} characters, {SUBJECT_MAX} is the most. {SubjectTooLong.fix}",
            param="subject",
        )
    check_subject(subject)


async def _keep_files(context: Context, attachments: tuple[Attachment, ...]) -> list[File]:
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
    retry_key: IdempotencyKey | None,
    shown: Shown | None = None,
    id_: str = "",
) -> Acceptance:
    """Build the acceptance of an email.

    A thread must pass `id_`, because ids are generated on the event loop only.
    """
    team, now, id_ = caller.team, context.clock.of(caller.team.record.ref), id_ or context.clock.new_id("eml_")
    template, status = draft.template, first_status(context, draft.timing, now)
    reply_to = [address.given for address in draft.recipients.reply_to] if draft.recipients.reply_to else []
    if draft.replies_to:
        reply_to = [verp.sign_reply(context.reply_key, id_, team.record.id, draft.replies_to)]
    stored, shared = _stored(draft, files, reply_to, shown, may_share=team.sandbox)
    undecided = Undecided(
        id=id_,
        created_at=now,
        status=status,
        team=team,
        draft=draft,
        reply_to=reply_to,
        files=len(files),
        drops_suppressed=shown is not None and shown.drop_suppressed,
    )
    return Acceptance(
        id=id_,
        team=team.record.ref,
        channel="email",
        lane=lanes.LANE["email"],
        status=status,
        sandbox=team.sandbox,
        caught=caller.caught or team.simulated,
        key_id=caller.key.id,
        created_at=now,
        credit_low=team.record.credit_low,
        content=stored,
        shared=shared,
        decide=undecided.decide,
        template_id=template.id if template else None,
        template_version=template.version if template else None,
        watch=[address.normal for address, _ in draft.recipients.distinct],
        blobs=sorted({file.blob for file in files if file.blob}) if files else (),
        file_octets=sum(file.size for file in files if file.blob) if files else 0,
        octets_most=team.record.octets_most,
        retry_key=retry_key,
        audit=caller.entry(id_) if caller.entry else None,
        timing=draft.timing,
        added=draft.added,
    )


class Undecided(msgspec.Struct, frozen=True, kw_only=True):
    """An email that awaits the store's decision on suppressions, quota and credit."""

    id: str
    created_at: int
    status: str
    team: Team
    draft: EmailDraft
    reply_to: list[str]
    files: int
    drops_suppressed: bool

    def decide(self, found: Found) -> Decision:
        draft, team = self.draft, self.team
        kept = split_suppressed(draft.recipients, found.suppressed, drop=self.drops_suppressed)
        price = _take_money(team, draft.template, kept, found, self.created_at)
        record = EmailRecord(
            id=self.id,
            to=kept.to[0].given,
            to_addresses=[a.given for a in kept.to],
            cc=[a.given for a in kept.cc] if kept.cc else [],
            bcc=[a.given for a in kept.bcc] if kept.bcc else [],
            reply_to=self.reply_to[0] if self.reply_to else None,
            from_=draft.sender.address.given,
            subject=draft.content.subject or "",
            recipient_count=kept.count,
            attachments_count=self.files,
            status=self.status,
            sandbox=team.sandbox,
            created_at=timestamp(self.created_at),
        )
        recipients = [AcceptedRecipient(address.normal, address.given, kind) for address, kind in kept.distinct]
        return Decision(msgspec.json.encode(record), recipients, record=record, price=price)


def _stored(
    draft: EmailDraft, files: list[File], reply_to: list[str], shown: Shown | None, *, may_share: bool
) -> tuple[bytes, SharedText | None]:
    """Encode the content to store.

    With `may_share`, a body above SHARED_MIN is returned separately, so that equal bodies are stored once.
    """
    recipients, content = draft.recipients, draft.content
    mail = EmailContent(
        from_name=draft.sender.name,
        from_address=draft.sender.address.given,
        to=shown.to if shown else [a.given for a in recipients.to],
        cc=shown.cc if shown else [a.given for a in recipients.cc] if recipients.cc else [],
        reply_to=reply_to or None,
        headers=draft.added.headers,
        subject=content.subject or "",
        html=content.html,
        text=content.text,
        attachments=files,
    )
    stored = msgspec.json.encode(mail)
    if not may_share or len(stored) <= SHARED_MIN:
        return stored, None
    stored, body = split_mail(mail)
    return stored, SharedText(hashlib.blake2b(body, digest_size=16).digest(), body)


def _take_money(team: Team, template: Template | None, kept: Recipients, found: Found, now: int) -> int:
    """Count billable recipients against the monthly quota; past the quota, hold and return the price (contract 7)."""
    if team.sandbox:
        return 0
    billed = 0
    for address in (*kept.to, *kept.cc, *kept.bcc):
        billed += not (address.domain == magic_recipients.DOMAIN and magic_recipients.is_magic_email(address.normal))
    if not billed:
        return 0
    if pricing.take_quota(found.account, billed, team.record.email_quota, pricing.month_of(now)):
        return 0
    price = pricing.price_for(template, None) if template else 0
    pricing.hold(found.account, price)
    return price
