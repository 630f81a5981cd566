// Made by `make clients` from the OpenAPI document. Do not edit.

export type ErrorCode = "missing_api_key" | "invalid_api_key" | "invalid_signature" | "callback_not_verified" | "team_suspended" | "insufficient_scope" | "rate_limit_exceeded" | "not_found" | "method_not_allowed" | "payload_too_large" | "unsupported_media_type" | "invalid_json" | "invalid_request" | "invalid_idempotency_key" | "idempotency_key_reused" | "idempotency_request_in_progress" | "invalid_email" | "missing_body" | "mixed_send_mode" | "too_many_recipients" | "subject_too_long" | "invalid_subject" | "invalid_tags" | "invalid_metadata" | "invalid_schedule" | "already_sending" | "invalid_header" | "too_many_attachments" | "invalid_attachment" | "unsupported_attachment_type" | "attachment_too_large" | "attachments_too_large" | "direct_sends_paused" | "invalid_from_address" | "sandbox_from_locked" | "no_approved_brand_domain" | "from_domain_unverified" | "key_domain_scope" | "display_name_id_not_found" | "display_name_id_wrong_domain" | "display_name_id_not_approved" | "display_name_not_approved" | "recipient_not_allowed" | "recipient_suppressed" | "recipient_opted_out" | "template_id_required" | "template_not_found" | "layout_not_found" | "invalid_template" | "wrong_template_channel" | "template_unavailable" | "missing_variable" | "unknown_variable" | "list_too_long" | "invalid_variable" | "invalid_phone" | "brand_domain_not_found" | "body_too_long" | "no_carrier_available" | "marketing_limit_reached" | "sandbox_limit_reached" | "storage_limit_reached" | "insufficient_credit" | "unsupported_channel" | "feature_not_on_plan" | "verify_rate_limited" | "invalid_code_format" | "verification_not_found" | "verification_ended" | "message_not_found" | "batch_not_found" | "received_not_found" | "suppression_not_found" | "opt_out_not_found" | "test_clock_not_found" | "webhook_not_found" | "team_not_found" | "internal_error" | "service_unavailable";

export interface AdvanceRequest {
  /** By how many seconds; 60 days in all. */
  advance_s: number;
}

export interface Alignment {
  /** DKIM proves the From domain. */
  dkim: boolean;
  /** SPF proves the From domain. */
  spf: boolean;
  /** One of the two is enough. */
  passes: boolean;
  /** How DMARC compares for DKIM. */
  adkim: "relaxed" | "strict";
  /** How DMARC compares for SPF. */
  aspf: "relaxed" | "strict";
  /** What receivers do with mail that fails; null without a policy. */
  policy: string | null;
}

export interface Attachment {
  /** Name of the file. */
  filename: string;
  /** The file as standard base64, padded, without white space. */
  content: string | Uint8Array;
  /** Its type; parameters such as `; charset=utf-8` may follow. May be absent when the filename's ending says it. Operators may allow others (`attachment_types`). */
  content_type?: "application/json" | "application/msword" | "application/pdf" | "application/vnd.ms-excel" | "application/vnd.ms-powerpoint" | "application/vnd.openxmlformats-officedocument.presentationml.presentation" | "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" | "application/vnd.openxmlformats-officedocument.wordprocessingml.document" | "application/x-zip-compressed" | "application/zip" | "image/gif" | "image/jpeg" | "image/png" | "image/svg+xml" | "image/webp" | "text/calendar" | "text/csv" | "text/plain";
  /** Makes it an inline part that the HTML names as `cid:…`; unique in its message. */
  content_id?: string;
}

export interface AttachmentRecord {
  /** For `GET /v1/received/:id/attachments/:id`; unique within the mail. */
  id: string;
  /** As the sender named it, without folders. */
  filename: string;
  /** What the sender says that it is. */
  content_type: string;
  /** Bytes, decoded. */
  size: number;
  /** What `cid:` in the HTML names it by. */
  content_id: string | null;
}

export interface AttemptRecord {
  /** Counts from 1. */
  number: number;
  /** When. */
  at: string;
  /** The status that came back; null without an answer. */
  status: number | null;
  /** Why there was no answer. */
  error: string | null;
  /** How long it took. */
  duration_ms: number;
  /** The first KB of the answer. */
  answer: string;
}

export interface AuditList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<AuditRecord>;
}

export interface AuditRecord {
  /** The kind of this object. */
  object: "audit_entry";
  /** Its number: higher ones were written later. */
  id: number;
  /** When it was written. */
  at: string;
  /** Who made the change: a person's id, `key` with a key's id, `command line` or `service`. */
  by: string;
  /** The person's address; null: not a person, or one who was removed. */
  email: string | null;
  /** The team that was changed; null: the whole instance. */
  team: string | null;
  /** What was done, for example `key.create`. */
  action: string;
  /** What was changed. */
  subject: string;
  /** More about it. */
  detail: string;
  /** The IP address that the change came from; empty: not over the network. */
  address: string;
}

export interface Authentication {
  /** Whether the envelope's sender allows that server. */
  spf: "fail" | "none" | "pass" | "permerror" | "temperror";
  /** Whether a signature of a domain holds. */
  dkim: "fail" | "none" | "pass" | "permerror" | "temperror";
  /** Whether one of these is by the domain in From. */
  dmarc: "fail" | "none" | "pass" | "permerror" | "temperror";
}

export interface BatchAnswer {
  /** The kind of this object. */
  object: "batch";
  /** Public id. */
  id: string;
  /** An entry for each send, in the order given. */
  data: Array<BatchEntry>;
}

export interface BatchEntry {
  /** Public id of the message. */
  id?: string | null;
  /** Why there is none. */
  error?: ErrorBody | null;
}

export interface BatchRecord {
  /** The kind of this object. */
  object: "batch";
  /** Public id. */
  id: string;
  /** Messages that were accepted; refused ones are not counted. */
  total: number;
  /** How many of them are in which state. */
  counts: Record<string, number>;
}

export interface BoundsView {
  /** Octets of all its parts together. */
  octets_max: number;
  /** SMS segments; null on other channels. */
  segments_max: number | null;
  /** Price of one send, in the dearest country. */
  price_max: string;
}

export interface CauseList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<ExplanationRecord>;
}

export interface CheckRecord {
  /** Public id. */
  id: string;
  /** `true` on the one call that brought the right code. */
  verified: boolean;
  /** The state of the verification. */
  status: "pending" | "verified" | "expired" | "exhausted" | "failed";
  /** Wrong codes left before exhaustion. */
  remaining_attempts: number;
}

export interface CheckRequest {
  /** The code as the user typed it, 4 to 10 characters. */
  code: string;
}

export interface DeletedOptOut {
  /** The kind of this object. */
  object: "opt_out";
  /** The phone number, in E.164. */
  phone: string;
  /** The channel that was asked for; null: both. */
  channel: "sms" | "whatsapp" | null;
  /** Always `true`. */
  deleted: true;
}

export interface DeletedSuppression {
  /** The kind of this object. */
  object: "suppression";
  /** The email address. */
  email: string;
  /** Always `true`. */
  deleted: true;
}

export interface DeletedWebhook {
  /** The kind of this object. */
  object: "webhook";
  /** Public id. */
  id: string;
  /** Always `true`. */
  deleted: true;
}

export interface DeliveryList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<DeliveryRecord>;
}

export interface DeliveryRecord {
  /** The event. */
  event_id: string;
  /** The event's type. */
  type: "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "webhook.test";
  /** `delivered`, still `waiting`, or given up. */
  state: "waiting" | "delivered" | "exhausted";
  /** When it is tried next; null after the last attempt. */
  next_attempt_at: string | null;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** Every attempt; kept for 30 days. */
  attempts: Array<AttemptRecord>;
}

export interface DomainList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<DomainView>;
}

export interface DomainRequest {
  /** The domain, such as `acme.test`. */
  name: string;
  /** The display name of its mail; default the team's name. */
  brand?: string | null;
}

export interface DomainView {
  /** Public id. */
  id: string;
  /** The domain, in A-labels. */
  name: string;
  /** The display name of its mail. */
  brand: string;
  /** DNS, or an operator, confirms that the team may send from it. */
  verified: boolean;
  /** An operator approved it. */
  approved: boolean;
  /** When DNS was last checked; null before the first check. */
  checked_at: string | null;
  /** The DNS records to set. */
  records: Array<RecordView>;
  /** Whether its mail passes DMARC; null before a check. */
  alignment: Alignment | null;
}

export interface EmailBatchRequest {
  /** `strict`: the first refusal refuses all. `permissive`: what is not refused is sent. */
  mode?: "permissive" | "strict" | null;
  /** 1 to 500 sends, each as the endpoint for one takes it. */
  messages: Array<EmailRequest>;
}

export interface EmailLine {
  /** Public id. */
  id: string;
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty when none. */
  cc: Array<string>;
  /** Bcc recipients without suppressed ones; empty when none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Subject as delivered. */
  subject: string;
  /** Recipients in To, Cc and Bcc, without suppressed ones in Bcc: what the quota counts. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The state of the message. */
  status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** The caller's own header fields. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When it is to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When it is too late to be sent; null: never. */
  expires_at?: string | null;
  /** What goes first of what is due. */
  priority?: "critical" | "normal" | "bulk";
}

export interface EmailList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<EmailLine>;
}

export interface EmailPreview {
  /** Always `true`: nothing was sent or written. */
  dry_run: true;
  /** The From header. */
  from: string;
  /** To recipients. */
  to: Array<string>;
  /** Cc recipients; empty when none. */
  cc: Array<string>;
  /** Bcc recipients without suppressed ones; empty when none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** Recipients in To, Cc and Bcc, without suppressed ones in Bcc: what the quota counts. */
  recipient_count: number;
  /** Subject as delivered. */
  subject: string;
  /** HTML body. */
  html: string | null;
  /** Plain-text body. */
  text: string | null;
  /** Number of attachments. */
  attachments_count: number;
  /** The version that was rendered; null without a template. */
  template_version: number | null;
  /** The version of the layout around it; null without one. */
  layout_version: number | null;
  /** The language that it is written in, as a tag such as `de-AT`; null without a template. */
  locale: string | null;
  /** What it would cost now, in the team's currency. */
  price: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
}

export interface EmailRecord {
  /** Public id. */
  id: string;
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty when none. */
  cc: Array<string>;
  /** Bcc recipients without suppressed ones; empty when none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Subject as delivered. */
  subject: string;
  /** Recipients in To, Cc and Bcc, without suppressed ones in Bcc: what the quota counts. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The state of the message. */
  status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface EmailRequest {
  /** Up to 10 names with values, to find and count messages by. */
  tags?: Record<string, string> | null;
  /** Any JSON object of up to 4 KiB; it comes back in reads and events, and is never searched. */
  metadata?: Record<string, unknown> | null;
  /** When to send it: a time with an offset, up to 60 days ahead; a past one means now. */
  scheduled_at?: string | null;
  /** When it is too late: what was not handed over by then fails with the reason `expired`. */
  expires_at?: string | null;
  /** Of what is due, `critical` goes before `normal` and `bulk` last; by default the template's, else `normal`. */
  priority?: "bulk" | "critical" | "normal" | null;
  /** Language tag (BCP 47): the nearest language that the template has, `de-AT`, `de`, then its own. */
  locale?: string | null;
  /** One address or a list. To, Cc and Bcc together have at most 50. */
  to: string | Array<string>;
  /** Cc addresses, up to 50. */
  cc?: Array<string> | null;
  /** Bcc addresses, up to 50; they are in no header, and suppressed ones are dropped. */
  bcc?: Array<string> | null;
  /** Sets the Reply-To header: one address, or a list of up to 10. */
  reply_to?: string | Array<string> | null;
  /** `true` sets a signed Reply-To: what comes to it is told as `email.received` with this mail's id in `in_reply_to`. The team has an inbound address on a wildcard. Not together with `reply_to`. */
  replies?: boolean | null;
  /** Own header fields, up to 25 with 8 KiB together: `X-…`, `List-Unsubscribe`, `List-Unsubscribe-Post`, `List-Id`, `In-Reply-To`, `References`, `Auto-Submitted`, `Feedback-ID`, `Importance`, `Priority`. */
  headers?: Record<string, string> | null;
  /** Up to 20 files, 10 MiB each, 25 MiB together. */
  attachments?: Array<Attachment> | null;
  /** `you@your-domain` or `Name <you@your-domain>`. Needed in live mode; a sandbox team leaves it out or sends the platform sender. */
  from?: string | null;
  /** `dn_` id of an approved display name of the sending domain. */
  from_display_id?: string | null;
  /** One line of up to 200 characters. Direct mode only. */
  subject?: string | null;
  /** HTML body. Direct mode needs `html`, `text` or both. */
  html?: string | null;
  /** Plain-text body. Direct mode only. */
  text?: string | null;
  /** `tpl_` id of an email template, in place of `subject`, `html` and `text`. */
  template_id?: string | null;
  /** Values of the template's `customer.*` variables, by name. */
  variables?: Variables | null;
}

export interface EmailView {
  /** Public id. */
  id: string;
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty when none. */
  cc: Array<string>;
  /** Bcc recipients without suppressed ones; empty when none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Subject as delivered. */
  subject: string;
  /** Recipients in To, Cc and Bcc, without suppressed ones in Bcc: what the quota counts. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The state of the message. */
  status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** The caller's own header fields. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When it is to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When it is too late to be sent; null: never. */
  expires_at?: string | null;
  /** What goes first of what is due. */
  priority?: "critical" | "normal" | "bulk";
  /** The version that was rendered; null without a template. */
  template_version: number | null;
  /** The version of the layout around it; null without one. */
  layout_version: number | null;
  /** The language that it is written in, as a tag such as `de-AT`; null without a template. */
  locale: string | null;
  /** `true`: a simulator took it, so nobody received it, whatever its state says. */
  simulated: boolean;
  /** Each distinct recipient with its own state. */
  recipients: Array<RecipientView>;
  /** The timeline. */
  events: Array<EventView>;
}

export interface Error {
  /** What went wrong. */
  error: ErrorBody;
}

export interface ErrorBody {
  /** The kind of error. */
  type: "api_error" | "authentication_error" | "conflict_error" | "idempotency_error" | "invalid_request_error" | "not_found_error" | "permission_error" | "rate_limit_error";
  /** The code to branch on. */
  code: "missing_api_key" | "invalid_api_key" | "invalid_signature" | "callback_not_verified" | "team_suspended" | "insufficient_scope" | "rate_limit_exceeded" | "not_found" | "method_not_allowed" | "payload_too_large" | "unsupported_media_type" | "invalid_json" | "invalid_request" | "invalid_idempotency_key" | "idempotency_key_reused" | "idempotency_request_in_progress" | "invalid_email" | "missing_body" | "mixed_send_mode" | "too_many_recipients" | "subject_too_long" | "invalid_subject" | "invalid_tags" | "invalid_metadata" | "invalid_schedule" | "already_sending" | "invalid_header" | "too_many_attachments" | "invalid_attachment" | "unsupported_attachment_type" | "attachment_too_large" | "attachments_too_large" | "direct_sends_paused" | "invalid_from_address" | "sandbox_from_locked" | "no_approved_brand_domain" | "from_domain_unverified" | "key_domain_scope" | "display_name_id_not_found" | "display_name_id_wrong_domain" | "display_name_id_not_approved" | "display_name_not_approved" | "recipient_not_allowed" | "recipient_suppressed" | "recipient_opted_out" | "template_id_required" | "template_not_found" | "layout_not_found" | "invalid_template" | "wrong_template_channel" | "template_unavailable" | "missing_variable" | "unknown_variable" | "list_too_long" | "invalid_variable" | "invalid_phone" | "brand_domain_not_found" | "body_too_long" | "no_carrier_available" | "marketing_limit_reached" | "sandbox_limit_reached" | "storage_limit_reached" | "insufficient_credit" | "unsupported_channel" | "feature_not_on_plan" | "verify_rate_limited" | "invalid_code_format" | "verification_not_found" | "verification_ended" | "message_not_found" | "batch_not_found" | "received_not_found" | "suppression_not_found" | "opt_out_not_found" | "test_clock_not_found" | "webhook_not_found" | "team_not_found" | "internal_error" | "service_unavailable";
  /** What is wrong and what to do about it. */
  message: string;
  /** The field or header at fault. */
  param: string | null;
  /** More, where a code has it. */
  details: Record<string, unknown> | null;
  /** Equals X-Request-Id. */
  request_id: string;
  /** Where the code is explained. */
  doc_url: string;
}

export interface ErrorEntry {
  /** The code. */
  code: string;
  /** Its HTTP status. */
  status: number;
  /** Its kind. */
  type: string;
  /** What is wrong. */
  meaning: string;
  /** What to do about it. */
  fix: string;
}

export interface ErrorList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<ErrorEntry>;
}

export interface EventView {
  /** Public id. */
  id: string;
  /** What happened, for example `email.delivered`. */
  type: string;
  /** Whose state changed. */
  recipient: string | null;
  /** The state since then. */
  status: string | null;
  /** The state before. */
  previous_status: string | null;
  /** The state of the whole message then. */
  message_status: string | null;
  /** Counts the message's events from 1; null for what was not published. */
  sequence: number | null;
  /** What the carrier or the report said: any JSON, or null. */
  detail: unknown | null;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** `true`: a simulator took it, so nobody received it, whatever its state says. */
  simulated: boolean;
}

export interface ExplanationRecord {
  /** The name to branch on: one of `GET /v1/causes`. */
  cause: string;
  /** What it is about. */
  category: "recipient" | "content" | "policy" | "infrastructure" | "sender" | "carrier" | "limit";
  /** What happened, for people. */
  text: string;
  /** What to do about it. */
  advice: string;
  /** Whether the same message may get through when it is sent again. */
  retry_helps: boolean;
}

export interface Health {
  /** Always `ok`. */
  status: "ok";
}

export interface InboxList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is more: get it with `before` = the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<InboxView>;
}

export interface InboxView {
  /** Public id. */
  id: string;
  /** The channel; `verification` for a code of Verify. */
  channel: "email" | "sms" | "whatsapp" | "verification";
  /** To whom a simulator delivered it. */
  to: Array<string>;
  /** The sender; null where the carrier chooses it. */
  from: string | null;
  /** The subject of an email. */
  subject: string | null;
  /** The plain text; null when there is none, or when it is no longer kept. */
  text: string | null;
  /** The HTML of an email. */
  html: string | null;
  /** The one-time code in it, if one was found. */
  code: string | null;
  /** The links in it, in their order. */
  links: Array<string>;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface KeyList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<KeyRecord>;
}

export interface KeyRecord {
  /** Public id: the 10 characters after `hk_` in its token. */
  id: string;
  /** What it is for. */
  name: string;
  /** What it may do. */
  scopes: Array<"send" | "manage">;
  /** The domain that it is pinned to; null: none. */
  domain: string | null;
  /** Whether it works; `expires`: until `expires_at`. */
  state: "works" | "expires" | "expired" | "revoked";
  /** Until when it works; null: until it is revoked. */
  expires_at: string | null;
  /** Where it may be used from; empty: anywhere. */
  networks: Array<string>;
  /** The template that free text in Twilio's shape becomes; null: the team's. */
  passthrough: string | null;
  /** Whether it signs hooks, such as Supabase's, and opens nothing else. */
  hook: boolean;
  /** Its last use, within a minute; null: never. */
  last_used_at: string | null;
}

export interface KeyRequest {
  /** What the key is for: one line of at most 200 characters, once in the team. */
  name: string;
  /** What it may do. Default: `send`. */
  scopes?: Array<"manage" | "send"> | null;
  /** Pins it to one of the team's domains. */
  domain?: string | null;
  /** Until when it works. Default: until it is revoked. */
  expires_at?: string | null;
  /** Make a key that signs hooks, such as Supabase's. Default: false. */
  hook?: boolean | null;
  /** Addresses or ranges that it may be used from. Default: any. */
  networks?: Array<string> | null;
  /** `tpl_…` of one variable for the free text of Twilio's programs. */
  passthrough?: string | null;
}

export interface LayoutChange {
  /** One line of at most 200 characters. */
  name?: string | null;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  html?: string | null;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  text?: string | null;
}

export interface LayoutLine {
  /** One line. */
  name: string;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  html: string | null;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  text: string | null;
  /** Public id. */
  id: string;
  /** A template takes an approved one. */
  status: "approved" | "draft" | "archived";
  /** Counts from 1, and on with each approved change. */
  version: number;
  /** The words that are not approved; null: there are none. */
  draft: LayoutWords | null;
  /** Since when the draft waits for approval; null: it does not. */
  submitted_at: string | null;
  /** Why an operator did not approve the draft. */
  refused_reason: string | null;
}

export interface LayoutList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<LayoutLine>;
}

export interface LayoutRequest {
  /** One line of at most 200 characters. */
  name?: string | null;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  html?: string | null;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  text?: string | null;
}

export interface LayoutVersion {
  /** One line. */
  name: string;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  html: string | null;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  text: string | null;
  /** Counts from 1. */
  version: number;
  /** When it was made; null before that was kept. */
  created_at: string | null;
}

export interface LayoutVersionList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<LayoutVersion>;
}

export interface LayoutView {
  /** One line. */
  name: string;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  html: string | null;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  text: string | null;
  /** Public id. */
  id: string;
  /** A template takes an approved one. */
  status: "approved" | "draft" | "archived";
  /** Counts from 1, and on with each approved change. */
  version: number;
  /** The words that are not approved; null: there are none. */
  draft: LayoutWords | null;
  /** Since when the draft waits for approval; null: it does not. */
  submitted_at: string | null;
  /** Why an operator did not approve the draft. */
  refused_reason: string | null;
  /** What should be looked at in its newest words. */
  problems: Array<ProblemView>;
}

export interface LayoutWords {
  /** One line. */
  name: string;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  html: string | null;
  /** Has `{{content}}` once, and `{{brand.name}}` and `{{brand.domain}}` where they are wanted. */
  text: string | null;
}

export interface Me {
  /** The key's team. */
  team: TeamView;
  /** The team's mode. */
  mode: "sandbox" | "live";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** What the key may do. */
  scopes: Array<"send" | "manage">;
  /** Recipients of this UTC month. */
  email_quota: QuotaView;
  /** ISO code of the billing currency. */
  currency: string;
  /** What can be spent now; holds are already taken off. */
  credit: string;
  /** What messages under way hold. */
  held: string;
}

export interface NewKeyRecord {
  /** Public id: the 10 characters after `hk_` in its token. */
  id: string;
  /** What it is for. */
  name: string;
  /** What it may do. */
  scopes: Array<"send" | "manage">;
  /** The domain that it is pinned to; null: none. */
  domain: string | null;
  /** Whether it works; `expires`: until `expires_at`. */
  state: "works" | "expires" | "expired" | "revoked";
  /** Until when it works; null: until it is revoked. */
  expires_at: string | null;
  /** Where it may be used from; empty: anywhere. */
  networks: Array<string>;
  /** The template that free text in Twilio's shape becomes; null: the team's. */
  passthrough: string | null;
  /** Whether it signs hooks, such as Supabase's, and opens nothing else. */
  hook: boolean;
  /** Its last use, within a minute; null: never. */
  last_used_at: string | null;
  /** The key itself, `hk_…`, or a hook's secret, `v1,whsec_…`. Shown this once. */
  token: string;
}

export interface NewWebhookRecord {
  /** Public id. */
  id: string;
  /** Where events are sent. */
  url: string;
  /** The events that it receives. */
  events: Array<"*" | "email.*" | "sms.*" | "whatsapp.*" | "verification.*" | "suppression.*" | "opt_out.*" | "domain.*" | "template.*" | "credit.*" | "batch.*" | "webhook.*" | "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "webhook.test">;
  /** Whether it receives events. */
  enabled: boolean;
  /** A note for people. */
  description: string | null;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** Why the service itself disabled it. */
  disabled_reason: string | null;
  /** Until then the previous secret signs, too. */
  secret_rotates_until: string | null;
  /** Whose body, headers and signature its events have. */
  format: "heliograph" | "postal" | "postmark" | "resend" | "twilio";
  /** Verifies what the format `postal` signs; null with any other. */
  public_key: string | null;
  /** Signs its events; `whsec_…`. Shown only now. */
  secret: string;
}

export interface OptOutList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<OptOutRecord>;
}

export interface OptOutRecord {
  /** The kind of this object. */
  object: "opt_out";
  /** Channel and phone, for `after`. */
  id: string;
  /** The phone number, in E.164. */
  phone: string;
  /** The channel that it opted out of. */
  channel: "sms" | "whatsapp";
  /** How: by a text, learned from a carrier, or by hand. */
  reason: "text" | "carrier" | "manual" | "marketing";
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface OptOutRequest {
  /** The phone number, in E.164. */
  phone: string;
  /** The channel that it opted out of. */
  channel: "sms" | "whatsapp";
}

export interface PhoneBatchRequest {
  /** `strict`: the first refusal refuses all. `permissive`: what is not refused is sent. */
  mode?: "permissive" | "strict" | null;
  /** 1 to 500 sends, each as the endpoint for one takes it. */
  messages: Array<PhoneRequest>;
}

export interface PhoneLine {
  /** Public id. */
  id: string;
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** The state of the message; only WhatsApp has `read`. */
  status: "queued" | "sending" | "sent" | "delivered" | "read" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When it is to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When it is too late to be sent; null: never. */
  expires_at?: string | null;
  /** What goes first of what is due. */
  priority?: "critical" | "normal" | "bulk";
}

export interface PhoneList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<PhoneLine>;
}

export interface PhoneRecord {
  /** Public id. */
  id: string;
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** The state of the message; only WhatsApp has `read`. */
  status: "queued" | "sending" | "sent" | "delivered" | "read" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface PhoneRequest {
  /** Up to 10 names with values, to find and count messages by. */
  tags?: Record<string, string> | null;
  /** Any JSON object of up to 4 KiB; it comes back in reads and events, and is never searched. */
  metadata?: Record<string, unknown> | null;
  /** When to send it: a time with an offset, up to 60 days ahead; a past one means now. */
  scheduled_at?: string | null;
  /** When it is too late: what was not handed over by then fails with the reason `expired`. */
  expires_at?: string | null;
  /** Of what is due, `critical` goes before `normal` and `bulk` last; by default the template's, else `normal`. */
  priority?: "bulk" | "critical" | "normal" | null;
  /** Language tag (BCP 47): the nearest language that the template has, `de-AT`, `de`, then its own. */
  locale?: string | null;
  /** Phone in E.164 form, for example `+14155550123`. */
  to: string;
  /** `tpl_` id of an approved template of this channel. */
  template_id: string;
  /** Values of the template's `customer.*` variables, by name. */
  variables?: Variables | null;
  /** `dom_` id of the verified domain whose brand the template shows. */
  brand_domain_id?: string | null;
}

export interface PhoneView {
  /** Public id. */
  id: string;
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** The state of the message; only WhatsApp has `read`. */
  status: "queued" | "sending" | "sent" | "delivered" | "read" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When it is to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When it is too late to be sent; null: never. */
  expires_at?: string | null;
  /** What goes first of what is due. */
  priority?: "critical" | "normal" | "bulk";
  /** The version that was rendered; null without a template. */
  template_version: number | null;
  /** The language that it is written in, as a tag such as `de-AT`; null without a template. */
  locale: string | null;
  /** `true`: a simulator took it, so nobody received it, whatever its state says. */
  simulated: boolean;
  /** Each distinct recipient with its own state. */
  recipients: Array<RecipientView>;
  /** The timeline. */
  events: Array<EventView>;
}

export interface PlatformMe {
  /** A platform key belongs to no team. */
  team: null;
  /** What the key may do. */
  scopes: Array<"operate">;
}

export interface Problem {
  /** Where the code is explained. */
  type: string;
  /** What the code means. */
  title: string;
  /** The HTTP status. */
  status: number;
  /** What is wrong and what to do about it. */
  detail: string;
  /** This request, as a URN. */
  instance: string;
  /** The code to branch on. */
  code: "missing_api_key" | "invalid_api_key" | "invalid_signature" | "callback_not_verified" | "team_suspended" | "insufficient_scope" | "rate_limit_exceeded" | "not_found" | "method_not_allowed" | "payload_too_large" | "unsupported_media_type" | "invalid_json" | "invalid_request" | "invalid_idempotency_key" | "idempotency_key_reused" | "idempotency_request_in_progress" | "invalid_email" | "missing_body" | "mixed_send_mode" | "too_many_recipients" | "subject_too_long" | "invalid_subject" | "invalid_tags" | "invalid_metadata" | "invalid_schedule" | "already_sending" | "invalid_header" | "too_many_attachments" | "invalid_attachment" | "unsupported_attachment_type" | "attachment_too_large" | "attachments_too_large" | "direct_sends_paused" | "invalid_from_address" | "sandbox_from_locked" | "no_approved_brand_domain" | "from_domain_unverified" | "key_domain_scope" | "display_name_id_not_found" | "display_name_id_wrong_domain" | "display_name_id_not_approved" | "display_name_not_approved" | "recipient_not_allowed" | "recipient_suppressed" | "recipient_opted_out" | "template_id_required" | "template_not_found" | "layout_not_found" | "invalid_template" | "wrong_template_channel" | "template_unavailable" | "missing_variable" | "unknown_variable" | "list_too_long" | "invalid_variable" | "invalid_phone" | "brand_domain_not_found" | "body_too_long" | "no_carrier_available" | "marketing_limit_reached" | "sandbox_limit_reached" | "storage_limit_reached" | "insufficient_credit" | "unsupported_channel" | "feature_not_on_plan" | "verify_rate_limited" | "invalid_code_format" | "verification_not_found" | "verification_ended" | "message_not_found" | "batch_not_found" | "received_not_found" | "suppression_not_found" | "opt_out_not_found" | "test_clock_not_found" | "webhook_not_found" | "team_not_found" | "internal_error" | "service_unavailable";
  /** The field or header at fault. */
  param: string | null;
  /** Equals X-Request-Id. */
  request_id: string;
}

export interface ProblemView {
  /** An error refuses a save, a warning does not. */
  level: "error" | "warning";
  /** What is wrong, for programs. */
  code: string;
  /** The field it is in. */
  part: string;
  /** Of another language's part; null: the template's own. */
  locale: string | null;
  /** Of the part, from 1; null where it is about the whole. */
  line: number | null;
  /** What is wrong, for people. */
  text: string;
}

export interface PublishedEvent {
  /** Public id. */
  id: string;
  /** What happened, for example `email.delivered`. */
  type: "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "webhook.test";
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Counts a message's events from 1. */
  sequence: number;
  /** The record of what changed, with its new `status`. */
  data: Record<string, unknown>;
}

export interface PublishedEventList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<PublishedEvent>;
}

export interface QuotaView {
  /** How many the plan includes. */
  limit: number;
  /** How many were used. */
  used: number;
}

export interface ReceivedList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<ReceivedRecord>;
}

export interface ReceivedRecord {
  /** The kind of this object. */
  object: "received";
  /** Public id. */
  id: string;
  /** The address in From, bare. */
  from: string;
  /** The addresses in To. */
  to: Array<string>;
  /** The addresses in Cc. */
  cc: Array<string>;
  /** The team's own addresses that it came to. */
  recipients: Array<string>;
  /** The subject. */
  subject: string;
  /** The plain text; null when there is none, or when it is no longer kept. */
  text: string | null;
  /** The HTML. It is the sender's: never show it without cleaning it. */
  html: string | null;
  /** What the sender wrote, without the mail that is quoted. */
  reply_text: string | null;
  /** The Message-ID header; empty: there is none. */
  message_id: string;
  /** The `eml_` id of the mail that this answers, by its signed Reply-To. */
  in_reply_to: string | null;
  /** `true`: no person wrote it: an auto-reply, a bounce, a list or a loop. */
  automatic: boolean;
  /** All headers in their order, as name and value. */
  headers: Array<Array<unknown>>;
  /** All parts that are not its text or HTML. */
  attachments: Array<AttachmentRecord>;
  /** Whether the sender is who it says. */
  authentication: Authentication;
  /** `true`: something was cut; the whole is at `GET /v1/received/:id` and `/raw`. */
  truncated: boolean;
}

export interface RecipientView {
  /** Email address or phone. */
  address: string;
  /** How it was addressed. */
  kind: "to" | "cc" | "bcc";
  /** The state of this recipient. */
  status: string;
  /** When the state last changed. */
  updated_at: string;
  /** What the carrier or the report said: any JSON, or null. */
  detail: unknown | null;
  /** Why it did not arrive, or not yet; null: no such news. */
  explanation: ExplanationRecord | null;
  /** `true`: a simulator took it, so nobody received it, whatever its state says. */
  simulated: boolean;
}

export interface RecordView {
  /** TXT or MX. */
  type: string;
  /** The name to set it for. */
  name: string;
  /** The value to set. */
  value: string;
  /** ownership, dkim, return_path, spf or dmarc. */
  purpose: string;
  /** Whether DNS had it at the last check; null before one or unanswered. */
  ok: boolean | null;
  /** What DNS said. */
  found: Array<string>;
  /** What to do about it; empty when nothing is wrong. */
  fix: string;
  /** The first name of `fix`, for programs that know it. */
  mend: string;
}

export interface RenderRequest {
  /** Values of the template's `customer.*` variables, by name. */
  variables?: Variables | null;
  /** Language tag (BCP 47): the nearest language that the template has, `de-AT`, `de`, then its own. */
  locale?: string | null;
  /** A phone, for the price in its country. SMS and WhatsApp templates only. */
  to?: string | null;
}

export interface RenderView {
  /** The channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Subject as delivered. */
  subject: string | null;
  /** HTML body. */
  html: string | null;
  /** Plain-text body. */
  text: string | null;
  /** The rendered text. */
  body: string | null;
  /** Billed segments of the SMS; null for other channels. */
  segments: number | null;
  /** How the SMS is encoded; null for other channels. */
  encoding: "gsm7" | "ucs2" | null;
  /** What it would cost now, in the team's currency. */
  price: string;
  /** Required variables that were not given. */
  missing: Array<string>;
  /** Given variables that the template does not declare. */
  unknown: Array<string>;
  /** What no values that are allowed exceed; null unless each variable declares its `max_length`. */
  bounds: BoundsView | null;
}

export interface Replay {
  /** The kind of this object. */
  object: "replay";
  /** How many are sent again. */
  count: number;
}

export type ReplayRequest = { /** An event to send again. */ event_id: string; } | { event_ids: Array<string>; } | { /** All its events of a span of time: after this moment */ created_after: string; /** and before this one. */ created_before: string; /** Only events that were not delivered. */ failed_only?: boolean | null; };

export interface RescheduleRequest {
  /** The new time, up to 60 days ahead; a past one means now. */
  scheduled_at: string;
}

export interface SmsPreview {
  /** Always `true`: nothing was sent or written. */
  dry_run: true;
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** ISO code of the phone's country; null when no country has the prefix. */
  country: string | null;
  /** The sender that the phone shows. */
  sender_id: string;
  /** The rendered text. */
  body: string;
  /** How the SMS is encoded; null for other channels. */
  encoding: "gsm7" | "ucs2";
  /** Billed segments of the SMS; null for other channels. */
  segments: number;
  /** The version that was rendered; null without a template. */
  template_version: number;
  /** The language that it is written in, as a tag such as `de-AT`; null without a template. */
  locale: string | null;
  /** What it would cost now, in the team's currency. */
  price: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
}

export interface SuppressionList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<SuppressionRecord>;
}

export interface SuppressionRecord {
  /** The email address. */
  email: string;
  /** Why it is suppressed. */
  reason: "bounce" | "complaint" | "manual";
  /** The message that bounced or was complained about. */
  source_message_id: string | null;
  /** What the carrier or the report said: any JSON, or null. */
  detail: unknown | null;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface SuppressionRequest {
  /** The address to suppress. */
  email: string;
  /** Why; default `manual`. */
  reason?: "bounce" | "complaint" | "manual" | null;
}

export interface TeamView {
  /** Public id. */
  id: string;
  /** Its name. */
  name: string;
}

export interface TemplateChange {
  /** One line of at most 200 characters. */
  name?: string | null;
  /** Of an email. */
  subject?: string | null;
  /** Of an email. */
  html?: string | null;
  /** Of an email. */
  text?: string | null;
  /** Of an SMS or WhatsApp message. */
  body?: string | null;
  /** Of a WhatsApp template. */
  category?: "AUTHENTICATION" | "UTILITY" | "MARKETING" | null;
  /** Of a WhatsApp template, as Meta names it. */
  language?: string | null;
  /** Of a WhatsApp template: its name at Meta. Default: `name`. */
  upstream_name?: string | null;
  /** Names, or objects `{"name", "list", "max", "max_length"}`, in their order. */
  variables?: Array<string | Record<string, unknown>> | null;
  /** Variables that may be absent. */
  optional?: Array<string> | null;
  /** The language of its parts. Default: `en`. */
  locale?: string | null;
  /** The parts in other languages, by their BCP 47 tag. */
  locales?: Record<string, Record<string, string>> | null;
  /** Of the times that it writes, such as `Europe/Vienna`. Default: `UTC`. */
  timezone?: string | null;
  /** A layout's id, around its html and text. */
  layout?: string | null;
  /** Values to preview it with. */
  examples?: Record<string, string> | null;
}

export interface TemplateLine {
  /** One line. */
  name: string;
  /** Of an email. */
  subject: string | null;
  /** Of an email. */
  html: string | null;
  /** Of an email. */
  text: string | null;
  /** Of an SMS or WhatsApp message. */
  body: string | null;
  /** Of a WhatsApp template. */
  category: string | null;
  /** Of a WhatsApp template. */
  language: string | null;
  /** Of a WhatsApp template; null: `name`. */
  upstream_name: string | null;
  /** Names, or objects `{"name", "list", "max", "max_length"}`, in their order. */
  variables: Array<string | Record<string, unknown>>;
  /** Variables that may be absent. */
  optional: Array<string>;
  /** The language of its parts. */
  locale: string;
  /** The parts in other languages, by their BCP 47 tag. */
  locales: Record<string, Record<string, string>>;
  /** Of the times that it writes. */
  timezone: string;
  /** The layout around its html and text. */
  layout: string | null;
  /** Public id. */
  id: string;
  /** The channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Only an approved one is sent. */
  status: "approved" | "draft" | "archived";
  /** Counts from 1, and on with each approved change. */
  version: number;
  /** Of one message, or of one segment of an SMS. */
  price: string;
  /** By ISO country. */
  prices: Record<string, string>;
  /** What Meta last told of a WhatsApp template; null: nothing. */
  upstream_status: "approved" | "pending" | "rejected" | "paused" | "disabled" | null | null;
  /** Why, in Meta's words. */
  upstream_reason: string | null;
  /** How its recipients like it, in Meta's words: `green`, `red`. */
  upstream_quality: string | null;
  /** The words that are not approved; null: there are none. */
  draft: TemplateWords | null;
  /** Since when the draft waits for approval; null: it does not. */
  submitted_at: string | null;
  /** Why an operator did not approve the draft. */
  refused_reason: string | null;
}

export interface TemplateList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<TemplateLine>;
}

export interface TemplateRequest {
  /** One line of at most 200 characters. */
  name?: string | null;
  /** Of an email. */
  subject?: string | null;
  /** Of an email. */
  html?: string | null;
  /** Of an email. */
  text?: string | null;
  /** Of an SMS or WhatsApp message. */
  body?: string | null;
  /** Of a WhatsApp template. */
  category?: "AUTHENTICATION" | "UTILITY" | "MARKETING" | null;
  /** Of a WhatsApp template, as Meta names it. */
  language?: string | null;
  /** Of a WhatsApp template: its name at Meta. Default: `name`. */
  upstream_name?: string | null;
  /** Names, or objects `{"name", "list", "max", "max_length"}`, in their order. */
  variables?: Array<string | Record<string, unknown>> | null;
  /** Variables that may be absent. */
  optional?: Array<string> | null;
  /** The language of its parts. Default: `en`. */
  locale?: string | null;
  /** The parts in other languages, by their BCP 47 tag. */
  locales?: Record<string, Record<string, string>> | null;
  /** Of the times that it writes, such as `Europe/Vienna`. Default: `UTC`. */
  timezone?: string | null;
  /** A layout's id, around its html and text. */
  layout?: string | null;
  /** Values to preview it with. */
  examples?: Record<string, string> | null;
  /** The channel. */
  channel: "email" | "sms" | "whatsapp";
}

export interface TemplateView {
  /** One line. */
  name: string;
  /** Of an email. */
  subject: string | null;
  /** Of an email. */
  html: string | null;
  /** Of an email. */
  text: string | null;
  /** Of an SMS or WhatsApp message. */
  body: string | null;
  /** Of a WhatsApp template. */
  category: string | null;
  /** Of a WhatsApp template. */
  language: string | null;
  /** Of a WhatsApp template; null: `name`. */
  upstream_name: string | null;
  /** Names, or objects `{"name", "list", "max", "max_length"}`, in their order. */
  variables: Array<string | Record<string, unknown>>;
  /** Variables that may be absent. */
  optional: Array<string>;
  /** The language of its parts. */
  locale: string;
  /** The parts in other languages, by their BCP 47 tag. */
  locales: Record<string, Record<string, string>>;
  /** Of the times that it writes. */
  timezone: string;
  /** The layout around its html and text. */
  layout: string | null;
  /** Public id. */
  id: string;
  /** The channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Only an approved one is sent. */
  status: "approved" | "draft" | "archived";
  /** Counts from 1, and on with each approved change. */
  version: number;
  /** Of one message, or of one segment of an SMS. */
  price: string;
  /** By ISO country. */
  prices: Record<string, string>;
  /** What Meta last told of a WhatsApp template; null: nothing. */
  upstream_status: "approved" | "pending" | "rejected" | "paused" | "disabled" | null | null;
  /** Why, in Meta's words. */
  upstream_reason: string | null;
  /** How its recipients like it, in Meta's words: `green`, `red`. */
  upstream_quality: string | null;
  /** The words that are not approved; null: there are none. */
  draft: TemplateWords | null;
  /** Since when the draft waits for approval; null: it does not. */
  submitted_at: string | null;
  /** Why an operator did not approve the draft. */
  refused_reason: string | null;
  /** What should be looked at in its newest words. */
  problems: Array<ProblemView>;
}

export interface TemplateWords {
  /** One line. */
  name: string;
  /** Of an email. */
  subject: string | null;
  /** Of an email. */
  html: string | null;
  /** Of an email. */
  text: string | null;
  /** Of an SMS or WhatsApp message. */
  body: string | null;
  /** Of a WhatsApp template. */
  category: string | null;
  /** Of a WhatsApp template. */
  language: string | null;
  /** Of a WhatsApp template; null: `name`. */
  upstream_name: string | null;
  /** Names, or objects `{"name", "list", "max", "max_length"}`, in their order. */
  variables: Array<string | Record<string, unknown>>;
  /** Variables that may be absent. */
  optional: Array<string>;
  /** The language of its parts. */
  locale: string;
  /** The parts in other languages, by their BCP 47 tag. */
  locales: Record<string, Record<string, string>>;
  /** Of the times that it writes. */
  timezone: string;
  /** The layout around its html and text. */
  layout: string | null;
}

export interface TestClockRecord {
  /** The kind of this object. */
  object: "test_clock";
  /** The team's time. */
  now: string;
  /** How far it is ahead of real time, in seconds. */
  offset_s: number;
  /** `false`: something that became due is not done yet. Absent: all of it is. */
  settled: boolean;
}

export interface TestEvent {
  /** The kind of this object. */
  object: "event";
  /** The event's id. */
  id: string;
  /** Its type. */
  type: "webhook.test";
}

export interface Variables {
  [name: string]: string | number | boolean | null | Array<Variables> | Variables;
}

export interface VerificationList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<VerificationView>;
}

export interface VerificationRecord {
  /** Public id. */
  id: string;
  /** The channel. */
  channel: "email" | "sms" | "whatsapp";
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** The state of the verification. */
  status: "pending" | "verified" | "expired" | "exhausted" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When the code stops working: ten minutes after the start. */
  expires_at: string;
  /** The carrier's words when the status is `failed`, else null. */
  error_message: string | null;
}

export interface VerificationView {
  /** Public id. */
  id: string;
  /** The channel. */
  channel: "email" | "sms" | "whatsapp";
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** The state of the verification. */
  status: "pending" | "verified" | "expired" | "exhausted" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When the code stops working: ten minutes after the start. */
  expires_at: string;
  /** The carrier's words when the status is `failed`, else null. */
  error_message: string | null;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** The language of its text, where one was asked for. */
  locale?: string | null;
}

export interface VerifyPreview {
  /** Always `true`: nothing was sent or written. */
  dry_run: true;
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** The channel. */
  channel: "email" | "sms" | "whatsapp";
  /** ISO code of the phone's country; null when no country has the prefix. */
  country: string | null;
  /** The language of its text, as a tag such as `de-AT`. */
  locale: string;
  /** What it would cost now, in the team's currency. */
  price: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
}

export interface VerifyRequest {
  /** Phone in E.164 form, for example `+14155550123`; by `email`, an email address. */
  to: string;
  /** `sms`, the default; `whatsapp` or `email` where the team's `verify.channels` names it. A list: the same code goes by the next one when the one before refuses it, or tells no receipt within 20 seconds. */
  channel?: "email" | "sms" | "whatsapp" | Array<"email" | "sms" | "whatsapp"> | null;
  /** Up to 10 names with values, to find and count messages by. */
  tags?: Record<string, string> | null;
  /** Any JSON object of up to 4 KiB; it comes back in reads and events, and is never searched. */
  metadata?: Record<string, unknown> | null;
  /** Language tag (BCP 47): the nearest language that the template has, `de-AT`, `de`, then its own. */
  locale?: string | null;
}

export interface VersionList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<VersionView>;
}

export interface VersionView {
  /** One line. */
  name: string;
  /** Of an email. */
  subject: string | null;
  /** Of an email. */
  html: string | null;
  /** Of an email. */
  text: string | null;
  /** Of an SMS or WhatsApp message. */
  body: string | null;
  /** Of a WhatsApp template. */
  category: string | null;
  /** Of a WhatsApp template. */
  language: string | null;
  /** Of a WhatsApp template; null: `name`. */
  upstream_name: string | null;
  /** Names, or objects `{"name", "list", "max", "max_length"}`, in their order. */
  variables: Array<string | Record<string, unknown>>;
  /** Variables that may be absent. */
  optional: Array<string>;
  /** The language of its parts. */
  locale: string;
  /** The parts in other languages, by their BCP 47 tag. */
  locales: Record<string, Record<string, string>>;
  /** Of the times that it writes. */
  timezone: string;
  /** The layout around its html and text. */
  layout: string | null;
  /** Counts from 1. */
  version: number;
  /** When it was made; null before that was kept. */
  created_at: string | null;
}

export interface WebhookChange {
  /** Where events are sent: http or https, without a fragment. `user:password@` before the host is sent as Basic authorization, and not shown again. */
  url?: string | null;
  /** Event types, groups such as `email.*`, or `*`. */
  events?: Array<"*" | "email.*" | "sms.*" | "whatsapp.*" | "verification.*" | "suppression.*" | "opt_out.*" | "domain.*" | "template.*" | "credit.*" | "batch.*" | "webhook.*" | "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "webhook.test"> | null;
  /** `true` also clears `disabled_reason`. */
  enabled?: boolean | null;
  /** A note for people. */
  description?: string | null;
  /** Whose body, headers and signature its events have: ours, or another service's. */
  format?: "heliograph" | "postal" | "postmark" | "resend" | "twilio" | null;
}

export interface WebhookList {
  /** The kind of this object. */
  object: "list";
  /** `true` when there is a next page: get it with `after` = the last id of this one. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<WebhookRecord>;
}

export interface WebhookRecord {
  /** Public id. */
  id: string;
  /** Where events are sent. */
  url: string;
  /** The events that it receives. */
  events: Array<"*" | "email.*" | "sms.*" | "whatsapp.*" | "verification.*" | "suppression.*" | "opt_out.*" | "domain.*" | "template.*" | "credit.*" | "batch.*" | "webhook.*" | "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "webhook.test">;
  /** Whether it receives events. */
  enabled: boolean;
  /** A note for people. */
  description: string | null;
  /** When it was made, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** Why the service itself disabled it. */
  disabled_reason: string | null;
  /** Until then the previous secret signs, too. */
  secret_rotates_until: string | null;
  /** Whose body, headers and signature its events have. */
  format: "heliograph" | "postal" | "postmark" | "resend" | "twilio";
  /** Verifies what the format `postal` signs; null with any other. */
  public_key: string | null;
}

export interface WebhookRequest {
  /** Where events are sent: http or https, without a fragment. `user:password@` before the host is sent as Basic authorization, and not shown again. */
  url: string;
  /** Event types, groups such as `email.*`, or `*`. */
  events: Array<"*" | "email.*" | "sms.*" | "whatsapp.*" | "verification.*" | "suppression.*" | "opt_out.*" | "domain.*" | "template.*" | "credit.*" | "batch.*" | "webhook.*" | "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "webhook.test">;
  /** A secret of your own: `whsec_` and the base64 of 24 to 64 bytes. Without it, one is generated. */
  secret?: string | null;
  /** A note for people. */
  description?: string | null;
  /** Whose body, headers and signature its events have: ours, or another service's. */
  format?: "heliograph" | "postal" | "postmark" | "resend" | "twilio" | null;
}

export interface WhatsappPreview {
  /** Always `true`: nothing was sent or written. */
  dry_run: true;
  /** The recipient: for email the first To address, else a phone in E.164 form. */
  to: string;
  /** ISO code of the phone's country; null when no country has the prefix. */
  country: string | null;
  /** The template's name upstream. */
  template: string;
  /** The template's language. */
  language: string;
  /** The values in the order of the template's manifest. */
  parameters: Array<string>;
  /** The rendered text. */
  body: string;
  /** The version that was rendered; null without a template. */
  template_version: number;
  /** The language that it is written in, as a tag such as `de-AT`; null without a template. */
  locale: string | null;
  /** What it would cost now, in the team's currency. */
  price: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
}

export interface Operations {
  "POST /v1/emails": { body: EmailRequest; query: { dry_run?: boolean }; answer: EmailRecord };
  "GET /v1/emails": { query: { limit?: number; after?: string; status?: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed"; to?: string; created_after?: string; created_before?: string; tag?: string; template_id?: string }; answer: EmailList };
  "POST /v1/sms": { body: PhoneRequest; query: { dry_run?: boolean }; answer: PhoneRecord };
  "GET /v1/sms": { query: { limit?: number; after?: string; status?: "queued" | "sending" | "sent" | "delivered" | "failed"; to?: string; created_after?: string; created_before?: string; tag?: string; template_id?: string }; answer: PhoneList };
  "POST /v1/whatsapp": { body: PhoneRequest; query: { dry_run?: boolean }; answer: PhoneRecord };
  "GET /v1/whatsapp": { query: { limit?: number; after?: string; status?: "queued" | "sending" | "sent" | "delivered" | "read" | "failed"; to?: string; created_after?: string; created_before?: string; tag?: string; template_id?: string }; answer: PhoneList };
  "POST /v1/emails/batch": { body: EmailBatchRequest; answer: BatchAnswer };
  "POST /v1/sms/batch": { body: PhoneBatchRequest; answer: BatchAnswer };
  "POST /v1/whatsapp/batch": { body: PhoneBatchRequest; answer: BatchAnswer };
  "GET /v1/received": { query: { limit?: number; after?: string }; answer: ReceivedList };
  "GET /v1/received/{id}": { answer: ReceivedRecord };
  "GET /v1/received/{id}/raw": { answer: ArrayBuffer };
  "GET /v1/received/{id}/attachments/{attachment}": { answer: ArrayBuffer };
  "GET /v1/batches/{id}": { answer: BatchRecord };
  "POST /v1/verify": { body: VerifyRequest; query: { dry_run?: boolean }; answer: VerificationRecord };
  "GET /v1/verify": { query: { limit?: number; after?: string; status?: "pending" | "verified" | "expired" | "exhausted" | "failed"; to?: string; created_after?: string; created_before?: string; tag?: string }; answer: VerificationList };
  "POST /v1/verify/{id}/check": { body: CheckRequest; answer: CheckRecord };
  "POST /v1/verify/{id}/resend": { answer: VerificationRecord };
  "POST /v1/verify/{id}/cancel": { answer: VerificationRecord };
  "DELETE /v1/suppressions/{email}": { answer: DeletedSuppression };
  "GET /v1/suppressions/{email}": { answer: SuppressionRecord };
  "PATCH /v1/emails/{id}": { body: RescheduleRequest; answer: EmailLine };
  "GET /v1/emails/{id}": { answer: EmailView };
  "POST /v1/emails/{id}/cancel": { answer: EmailLine };
  "PATCH /v1/sms/{id}": { body: RescheduleRequest; answer: PhoneLine };
  "GET /v1/sms/{id}": { answer: PhoneView };
  "POST /v1/sms/{id}/cancel": { answer: PhoneLine };
  "PATCH /v1/whatsapp/{id}": { body: RescheduleRequest; answer: PhoneLine };
  "GET /v1/whatsapp/{id}": { answer: PhoneView };
  "POST /v1/whatsapp/{id}/cancel": { answer: PhoneLine };
  "GET /v1/verify/{id}": { answer: VerificationView };
  "POST /v1/templates/{id}/render": { body: RenderRequest; answer: RenderView };
  "GET /v1/inbox": { query: { limit?: number; to?: string; channel?: "email" | "sms" | "whatsapp" | "verification"; after?: string; before?: string; wait?: number }; answer: InboxList };
  "GET /v1/inbox/{id}": { answer: InboxView };
  "GET /v1/me": { answer: Me | PlatformMe };
  "GET /v1/suppressions": { query: { limit?: number; after?: string }; answer: SuppressionList };
  "POST /v1/suppressions": { body: SuppressionRequest; answer: SuppressionRecord };
  "GET /v1/test-clock": { answer: TestClockRecord };
  "POST /v1/test-clock": { body: AdvanceRequest; answer: TestClockRecord };
  "GET /v1/opt-outs": { query: { limit?: number; after?: string }; answer: OptOutList };
  "POST /v1/opt-outs": { body: OptOutRequest; answer: OptOutRecord };
  "GET /v1/opt-outs/{phone}": { query: { channel?: "sms" | "whatsapp" }; answer: OptOutRecord | OptOutList };
  "DELETE /v1/opt-outs/{phone}": { query: { channel?: "sms" | "whatsapp" }; answer: DeletedOptOut };
  "GET /v1/domains": { query: { limit?: number; after?: string }; answer: DomainList };
  "POST /v1/domains": { body: DomainRequest; answer: DomainView };
  "GET /v1/domains/{id}": { answer: DomainView };
  "POST /v1/domains/{id}/rotate": { answer: DomainView };
  "POST /v1/domains/{id}/check": { answer: DomainView };
  "GET /v1/templates": { query: { limit?: number; after?: string }; answer: TemplateList };
  "POST /v1/templates": { body: TemplateRequest; answer: TemplateView };
  "GET /v1/templates/{id}": { answer: TemplateView };
  "PATCH /v1/templates/{id}": { body: TemplateChange; answer: TemplateView };
  "POST /v1/templates/{id}/submit": { answer: TemplateView };
  "POST /v1/templates/{id}/archive": { answer: TemplateView };
  "GET /v1/templates/{id}/versions": { query: { limit?: number; after?: number }; answer: VersionList };
  "GET /v1/layouts": { query: { limit?: number; after?: string }; answer: LayoutList };
  "POST /v1/layouts": { body: LayoutRequest; answer: LayoutView };
  "GET /v1/layouts/{id}": { answer: LayoutView };
  "PATCH /v1/layouts/{id}": { body: LayoutChange; answer: LayoutView };
  "POST /v1/layouts/{id}/submit": { answer: LayoutView };
  "POST /v1/layouts/{id}/archive": { answer: LayoutView };
  "GET /v1/layouts/{id}/versions": { query: { limit?: number; after?: number }; answer: LayoutVersionList };
  "GET /v1/keys": { query: { limit?: number; after?: string }; answer: KeyList };
  "POST /v1/keys": { body: KeyRequest; answer: NewKeyRecord };
  "POST /v1/keys/{id}/rotate": { answer: NewKeyRecord };
  "DELETE /v1/keys/{id}": { answer: KeyRecord };
  "GET /v1/webhooks": { query: { limit?: number; after?: string }; answer: WebhookList };
  "POST /v1/webhooks": { body: WebhookRequest; answer: NewWebhookRecord };
  "GET /v1/webhooks/{id}": { answer: WebhookRecord };
  "PATCH /v1/webhooks/{id}": { body: WebhookChange; answer: WebhookRecord };
  "DELETE /v1/webhooks/{id}": { answer: DeletedWebhook };
  "POST /v1/webhooks/{id}/rotate": { answer: NewWebhookRecord };
  "POST /v1/webhooks/{id}/test": { answer: TestEvent };
  "POST /v1/webhooks/{id}/replay": { body: ReplayRequest; answer: Replay };
  "GET /v1/webhooks/{id}/deliveries": { query: { limit?: number; after?: string }; answer: DeliveryList };
  "GET /v1/events": { query: { limit?: number; after?: string; order?: "oldest" | "newest" }; answer: PublishedEventList };
  "GET /v1/audit": { query: { limit?: number; after?: number; team?: string }; answer: AuditList };
  "GET /v1/errors": { query: { limit?: number; after?: string }; answer: ErrorList };
  "GET /v1/causes": { query: { limit?: number; after?: string }; answer: CauseList };
  "GET /healthz": { answer: Health };
  "GET /readyz": { answer: Health };
}
