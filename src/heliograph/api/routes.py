"""The whole URL space on one screen."""

from typing import Any

from heliograph.accept.batch import EmailBatchRequest, PhoneBatchRequest
from heliograph.accept.email import (
    EmailPreview,
    EmailRecord,
    EmailRequest,
    prepare_email,
    preview_email,
    send_email,
    weigh_email,
)
from heliograph.accept.phone import PhoneRecord, PhoneRequest
from heliograph.accept.scheduled import RescheduleRequest
from heliograph.accept.sms import SmsPreview, prepare_sms, preview_sms, send_sms
from heliograph.accept.verify_check import CheckRecord, CheckRequest
from heliograph.accept.verify_start import (
    VerificationRecord,
    VerifyPreview,
    VerifyRequest,
    preview_verification,
    start_verification,
)
from heliograph.accept.whatsapp import WhatsappPreview, prepare_whatsapp, preview_whatsapp, send_whatsapp
from heliograph.api import (
    batches,
    callbacks,
    domains,
    events,
    health,
    inbox,
    keys,
    reading,
    rendering,
    scheduled,
    suppressions,
    webhooks,
)
from heliograph.api.documents import LISTED_AFTER, CauseList, ErrorList, document_routes, list_causes, list_errors
from heliograph.api.reading import filters
from heliograph.api.sending import DRY_RUN, cancel_verification, check_verification, resend_verification, sending
from heliograph.manage.keys import KeyRecord
from heliograph.manage.webhooks import WebhookChange, WebhookRequest
from heliograph.rules import refusals as r
from heliograph.rules.batch import BatchRecord
from heliograph.rules.limits import BATCH_BODY_MAX, EMAIL_BODY_MAX
from heliograph.rules.setup.records import Channel
from heliograph.rules.setup.webhook import NewWebhookRecord, WebhookRecord
from heliograph.web.paging import LIMIT, WHOLE, after
from heliograph.web.route import Route

SEND, MANAGE, EITHER = ("send",), ("manage",), ("send", "manage")

BOUNDS = (r.ListTooLong, r.InvalidVariable)
TEMPLATE = (r.TemplateNotFound, r.WrongTemplateChannel, r.MissingVariable, r.UnknownVariable, *BOUNDS)
ONCE = (r.InvalidIdempotencyKey, r.IdempotencyKeyReused, r.IdempotencyRequestInProgress)
EMAIL = (
    *ONCE,
    r.MixedSendMode,
    r.MissingBody,
    r.InvalidEmail,
    r.TooManyRecipients,
    r.SubjectTooLong,
    r.InvalidSubject,
    r.TooManyAttachments,
    r.InvalidAttachment,
    r.InvalidTags,
    r.InvalidMetadata,
    r.InvalidSchedule,
    r.InvalidHeader,
    r.UnsupportedAttachmentType,
    r.AttachmentTooLarge,
    r.AttachmentsTooLarge,
    r.DirectSendsPaused,
    r.NoApprovedBrandDomain,
    r.InvalidFromAddress,
    r.FromDomainUnverified,
    r.KeyDomainScope,
    r.SandboxFromLocked,
    r.DisplayNameIdNotFound,
    r.DisplayNameIdWrongDomain,
    r.DisplayNameIdNotApproved,
    r.DisplayNameNotApproved,
    *TEMPLATE,
    r.BodyTooLong,
    r.RecipientNotAllowed,
    r.RecipientSuppressed,
    r.InsufficientCredit,
    r.StorageLimitReached,
)
PHONE = (
    *ONCE,
    r.InvalidPhone,
    r.InvalidTags,
    r.InvalidMetadata,
    r.InvalidSchedule,
    r.TemplateIdRequired,
    *TEMPLATE,
    r.NoApprovedBrandDomain,
    r.BrandDomainNotFound,
    r.KeyDomainScope,
    r.BodyTooLong,
    r.RecipientNotAllowed,
    r.SandboxLimitReached,
    r.NoCarrierAvailable,
    r.InsufficientCredit,
    r.StorageLimitReached,
)
UNTOUCHED = (r.MessageNotFound, r.AlreadySending)
MOVABLE: tuple[tuple[str, Channel, str, Any], ...] = (
    ("emails", "email", "an email", reading.EmailLine),
    ("sms", "sms", "an SMS message", reading.PhoneLine),
    ("whatsapp", "whatsapp", "a WhatsApp message", reading.PhoneLine),
)
CODE_TO = (
    r.FeatureNotOnPlan,
    r.NoApprovedBrandDomain,
    r.KeyDomainScope,
    r.RecipientNotAllowed,
    r.RecipientSuppressed,
)
CODE_LIMITS = (r.SandboxLimitReached, r.VerifyRateLimited)
VERIFY = (
    *ONCE,
    r.UnsupportedChannel,
    r.InvalidPhone,
    r.InvalidEmail,
    r.InvalidTags,
    r.InvalidMetadata,
    *CODE_TO,
    *CODE_LIMITS,
    r.InsufficientCredit,
)

# The examples run on the demo as they are: emails with the key of any sandbox team, which names no sender, the others
# with its live key. Their recipients are magic: nothing leaves the machine.
# fmt: off
V1 = [
    Route(method="POST", path="/v1/emails", call=sending(send_email, preview_email, weigh_email), scopes=SEND,
          summary="Send an email", body=EmailRequest, body_max=EMAIL_BODY_MAX, status=202, answer=EmailRecord,
          query=(DRY_RUN,), idempotent=True, preview=EmailPreview, refusals=EMAIL,
          example={"to": "delivered@simulator.test", "subject": "Hello", "text": "It works."}),
    Route(method="POST", path="/v1/sms", call=sending(send_sms, preview_sms), scopes=SEND,
          summary="Send an SMS", body=PhoneRequest, status=202, answer=PhoneRecord,
          query=(DRY_RUN,), idempotent=True, preview=SmsPreview, refusals=PHONE,
          example={"to": "+15005550006", "template_id": "tpl_demo_sms", "variables": {"parcel": "4711"}}),
    Route(method="POST", path="/v1/whatsapp", call=sending(send_whatsapp, preview_whatsapp), scopes=SEND,
          summary="Send a WhatsApp message", body=PhoneRequest, status=202, answer=PhoneRecord,
          query=(DRY_RUN,), idempotent=True, preview=WhatsappPreview, refusals=(*PHONE, r.MarketingLimitReached),
          example={"to": "+15005550006", "template_id": "tpl_demo_whatsapp", "variables": {"parcel": "4711"}}),
    Route(method="POST", path="/v1/emails/batch", call=batches.sending(prepare_email, EmailRequest), scopes=SEND,
          summary="Send up to 500 emails at once", body=EmailBatchRequest, body_max=BATCH_BODY_MAX, status=202,
          answer=batches.BatchAnswer, idempotent=True, refusals=EMAIL,
          example={"messages": [{"to": "delivered@simulator.test", "subject": "Hello", "text": "It works."}]}),
    Route(method="POST", path="/v1/sms/batch", call=batches.sending(prepare_sms, PhoneRequest), scopes=SEND,
          summary="Send up to 500 SMS messages at once", body=PhoneBatchRequest, body_max=BATCH_BODY_MAX, status=202,
          answer=batches.BatchAnswer, idempotent=True, refusals=PHONE,
          example={"messages": [{"to": "+15005550006", "template_id": "tpl_demo_sms",
                                 "variables": {"parcel": "4711"}}]}),
    Route(method="POST", path="/v1/whatsapp/batch", call=batches.sending(prepare_whatsapp, PhoneRequest), scopes=SEND,
          summary="Send up to 500 WhatsApp messages at once", body=PhoneBatchRequest, body_max=BATCH_BODY_MAX,
          status=202, answer=batches.BatchAnswer, idempotent=True, refusals=(*PHONE, r.MarketingLimitReached),
          example={"messages": [{"to": "+15005550006", "template_id": "tpl_demo_whatsapp",
                                 "variables": {"parcel": "4711"}}]}),
    Route(method="GET", path="/v1/batches/{id}", call=batches.read, scopes=SEND,
          summary="Read how far a batch is", answer=BatchRecord, refusals=(r.BatchNotFound,)),
    Route(method="POST", path="/v1/verify", call=sending(start_verification, preview_verification), scopes=SEND,
          summary="Send a one-time code", body=VerifyRequest, status=202, answer=VerificationRecord,
          query=(DRY_RUN,), idempotent=True, preview=VerifyPreview, refusals=VERIFY,
          example={"to": "+15005550006"}),
    Route(method="POST", path="/v1/verify/{id}/check", call=check_verification, scopes=SEND,
          summary="Check a one-time code", body=CheckRequest, answer=CheckRecord,
          refusals=(r.InvalidCodeFormat, r.VerificationNotFound),
          example={"code": "000000"}),
    Route(method="POST", path="/v1/verify/{id}/resend", call=resend_verification, scopes=SEND,
          summary="Send the same code once more", status=202, answer=VerificationRecord, idempotent=True,
          refusals=(*ONCE, r.VerificationNotFound, *CODE_TO, r.VerificationEnded, *CODE_LIMITS)),
    Route(method="POST", path="/v1/verify/{id}/cancel", call=cancel_verification, scopes=SEND,
          summary="Cancel a verification: its code works no more", answer=VerificationRecord,
          refusals=(r.VerificationNotFound,)),
    Route(method="DELETE", path="/v1/suppressions/{email}", call=suppressions.delete, scopes=EITHER,
          summary="Remove an address from the suppression list", answer=suppressions.DeletedSuppression,
          refusals=(r.SuppressionNotFound,)),

    *(route for path, channel, one, line in MOVABLE for route in (
        Route(method="PATCH", path=f"/v1/{path}/{{id}}", call=scheduled.reschedule(channel), scopes=SEND,
              summary=f"Move {one} that waits for its time", body=RescheduleRequest, answer=line,
              refusals=(r.InvalidSchedule, *UNTOUCHED), example={"scheduled_at": "2026-12-24T18:00:00Z"}),
        Route(method="POST", path=f"/v1/{path}/{{id}}/cancel", call=scheduled.cancel(channel), scopes=SEND,
              summary=f"Cancel {one} that is not on its way yet", answer=line, refusals=UNTOUCHED),
    )),

    Route(method="GET", path="/v1/emails", call=reading.list_messages("email"), scopes=SEND,
          summary="List emails, newest first", query=filters("email"), answer=reading.EmailList),
    Route(method="GET", path="/v1/emails/{id}", call=reading.read_message("email"), scopes=SEND,
          summary="Read an email, its recipients and its timeline", answer=reading.EmailView,
          refusals=(r.MessageNotFound,)),
    Route(method="GET", path="/v1/sms", call=reading.list_messages("sms"), scopes=SEND,
          summary="List SMS messages, newest first", query=filters("sms"), answer=reading.PhoneList),
    Route(method="GET", path="/v1/sms/{id}", call=reading.read_message("sms"), scopes=SEND,
          summary="Read an SMS message and its timeline", answer=reading.PhoneView,
          refusals=(r.MessageNotFound,)),
    Route(method="GET", path="/v1/whatsapp", call=reading.list_messages("whatsapp"), scopes=SEND,
          summary="List WhatsApp messages, newest first", query=filters("whatsapp"), answer=reading.PhoneList),
    Route(method="GET", path="/v1/whatsapp/{id}", call=reading.read_message("whatsapp"), scopes=SEND,
          summary="Read a WhatsApp message and its timeline", answer=reading.PhoneView,
          refusals=(r.MessageNotFound,)),
    Route(method="GET", path="/v1/verify", call=reading.list_verifications, scopes=SEND,
          summary="List verifications, newest first", query=filters("verification"), answer=reading.VerificationList),
    Route(method="GET", path="/v1/verify/{id}", call=reading.read_verification, scopes=SEND,
          summary="Read a verification", answer=reading.VerificationView, refusals=(r.VerificationNotFound,)),
    Route(method="POST", path="/v1/templates/{id}/render", call=rendering.render_template, scopes=SEND,
          summary="Render a template without sending", body=rendering.RenderRequest, answer=rendering.RenderView,
          refusals=(r.TemplateNotFound, *BOUNDS, r.InvalidPhone, r.BodyTooLong),
          example={"variables": {"name": "Ada"}}),
    Route(method="GET", path="/v1/inbox", call=inbox.list_all, scopes=SEND,
          summary="Read the test inbox of a sandbox team, or wait for the next message", query=inbox.QUERY,
          answer=inbox.InboxList),
    Route(method="GET", path="/v1/inbox/{id}", call=inbox.read, scopes=SEND,
          summary="Read a message of the test inbox", answer=inbox.InboxView, refusals=(r.MessageNotFound,)),
    Route(method="GET", path="/v1/me", call=reading.read_me, scopes=EITHER,
          summary="The team behind this key: mode, quota, credit", answer=reading.Me),

    Route(method="GET", path="/v1/suppressions", call=suppressions.list_all, scopes=MANAGE,
          summary="List suppressions, newest first", query=(LIMIT, suppressions.AFTER),
          answer=suppressions.SuppressionList),
    Route(method="POST", path="/v1/suppressions", call=suppressions.create, scopes=MANAGE,
          summary="Add an address to the suppression list", body=suppressions.SuppressionRequest, status=201,
          answer=suppressions.SuppressionRecord, refusals=(r.InvalidEmail,),
          example={"email": "ada@example.com", "reason": "manual"}),
    Route(method="GET", path="/v1/suppressions/{email}", call=suppressions.read, scopes=MANAGE,
          summary="Read a suppression", answer=suppressions.SuppressionRecord, refusals=(r.SuppressionNotFound,)),

    Route(method="GET", path="/v1/domains", call=domains.list_all, scopes=MANAGE, fresh=True,
          summary="List the team's sending domains", query=(WHOLE, after("domain")), answer=domains.DomainList),
    Route(method="POST", path="/v1/domains", call=domains.create, scopes=MANAGE,
          summary="Add a sending domain and get the DNS records to set", body=domains.DomainRequest, status=201,
          answer=domains.DomainView,
          example={"name": "mail.example.com", "brand": "Demo"}),
    Route(method="GET", path="/v1/domains/{id}", call=domains.read, scopes=MANAGE, fresh=True,
          summary="Read a sending domain and its DNS records", answer=domains.DomainView,
          refusals=(r.BrandDomainNotFound,)),
    Route(method="POST", path="/v1/domains/{id}/rotate", call=domains.rotate, scopes=MANAGE,
          summary="Make a second pair of DKIM keys, which signs once its records are found",
          answer=domains.DomainView, refusals=(r.BrandDomainNotFound,)),
    Route(method="POST", path="/v1/domains/{id}/check", call=domains.check, scopes=MANAGE,
          summary="Check the DNS records of a sending domain", answer=domains.DomainView,
          refusals=(r.BrandDomainNotFound,)),

    Route(method="GET", path="/v1/keys", call=keys.list_all, scopes=MANAGE, fresh=True,
          summary="List the team's API keys", query=(LIMIT, keys.AFTER), answer=keys.KeyList),
    Route(method="POST", path="/v1/keys", call=keys.create, scopes=MANAGE,
          summary="Make an API key: answers its token, this once", body=keys.KeyRequest, status=201,
          answer=keys.NewKeyRecord, example={"name": "server", "scopes": ["send"]}),
    Route(method="POST", path="/v1/keys/{id}/rotate", call=keys.rotate, scopes=MANAGE,
          summary="Replace an API key; the old one works for 24 hours more", answer=keys.NewKeyRecord,
          refusals=(r.NotFound,)),
    Route(method="DELETE", path="/v1/keys/{id}", call=keys.revoke, scopes=MANAGE,
          summary="Revoke an API key for good", answer=KeyRecord, refusals=(r.NotFound,)),

    Route(method="GET", path="/v1/webhooks", call=webhooks.list_all, scopes=MANAGE, fresh=True,
          summary="List webhooks, newest first", query=(LIMIT, after("webhook")), answer=webhooks.WebhookList),
    Route(method="POST", path="/v1/webhooks", call=webhooks.create, scopes=MANAGE,
          summary="Add a webhook; only this answer shows its secret", body=WebhookRequest, status=201,
          answer=NewWebhookRecord,
          example={"url": "https://example.com/hooks", "events": ["email.*", "suppression.created"]}),
    Route(method="GET", path="/v1/webhooks/{id}", call=webhooks.read, scopes=MANAGE, fresh=True,
          summary="Read a webhook", answer=WebhookRecord, refusals=(r.WebhookNotFound,)),
    Route(method="PATCH", path="/v1/webhooks/{id}", call=webhooks.change, scopes=MANAGE,
          summary="Change, disable or enable a webhook", body=WebhookChange, answer=WebhookRecord,
          refusals=(r.WebhookNotFound,),
          example={"enabled": True}),
    Route(method="DELETE", path="/v1/webhooks/{id}", call=webhooks.delete, scopes=MANAGE,
          summary="Delete a webhook and its waiting deliveries", answer=webhooks.DeletedWebhook,
          refusals=(r.WebhookNotFound,)),
    Route(method="POST", path="/v1/webhooks/{id}/rotate", call=webhooks.rotate, scopes=MANAGE,
          summary="Rotate a webhook's secret; the old one signs too for 24 hours", answer=NewWebhookRecord,
          refusals=(r.WebhookNotFound,)),
    Route(method="POST", path="/v1/webhooks/{id}/test", call=webhooks.test, scopes=MANAGE, status=202,
          summary="Send a test event to a webhook", answer=webhooks.TestEvent, refusals=(r.WebhookNotFound,)),
    Route(method="POST", path="/v1/webhooks/{id}/replay", call=webhooks.replay, scopes=MANAGE, status=202,
          summary="Send events to a webhook again", body=webhooks.ReplayRequest, answer=webhooks.Replay,
          refusals=(r.WebhookNotFound,),
          example={"event_id": "evt_01JCQ8Z6V3M2N7T0K4H9R5B1XA"}),
    Route(method="GET", path="/v1/webhooks/{id}/deliveries", call=webhooks.list_deliveries, scopes=MANAGE,
          summary="List a webhook's deliveries, newest first, with every attempt",
          query=(LIMIT, webhooks.DELIVERIES_AFTER), answer=webhooks.DeliveryList, refusals=(r.WebhookNotFound,)),
    Route(method="GET", path="/v1/events", call=events.list_all, scopes=MANAGE,
          summary="Every event, oldest first: a feed to pull from", query=(LIMIT, after("event")),
          answer=events.PublishedEventList),

    Route(method="GET", path="/v1/errors", call=list_errors, summary="Every error code: meaning and fix",
          query=(WHOLE, LISTED_AFTER), answer=ErrorList, refusals=(r.InvalidRequest,)),
    Route(method="GET", path="/v1/causes", call=list_causes, summary="Every cause of an explanation: why messages fail",
          query=(WHOLE, LISTED_AFTER), answer=CauseList, refusals=(r.InvalidRequest,)),
    Route(method="GET", path="/healthz", call=health.healthz, summary="Is the process alive?", answer=health.Health),
    Route(method="GET", path="/readyz", call=health.readyz, summary="Can it accept messages?", answer=health.Health,
          refusals=(r.ServiceUnavailable,)),
]

ROUTES = [
    *V1,
    *document_routes(V1),
    Route(method="POST", path="/carriers/{id}/callback", call=callbacks.callback, body_max=callbacks.CALLBACK_MAX,
          summary="Where carriers report"),
    Route(method="GET", path="/carriers/{id}/callback", call=callbacks.callback, summary="Meta's challenge"),
    Route(method="GET", path="/metrics", call=health.metrics, summary="Counters for Prometheus"),
]
# fmt: on
