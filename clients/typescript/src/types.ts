// Made by `make clients` from the OpenAPI document. Do not edit.

export type ErrorCode = "missing_api_key" | "invalid_api_key" | "wrong_cell" | "invalid_signature" | "callback_not_verified" | "team_suspended" | "insufficient_scope" | "restricted_key_required" | "channel_not_permitted" | "rate_limit_exceeded" | "not_found" | "method_not_allowed" | "payload_too_large" | "unsupported_media_type" | "invalid_json" | "invalid_request" | "invalid_idempotency_key" | "idempotency_key_reused" | "idempotency_request_in_progress" | "invalid_email" | "missing_body" | "mixed_send_mode" | "too_many_recipients" | "subject_too_long" | "invalid_subject" | "invalid_tags" | "invalid_metadata" | "invalid_schedule" | "already_sending" | "invalid_header" | "too_many_attachments" | "invalid_attachment" | "unsupported_attachment_type" | "attachment_too_large" | "attachments_too_large" | "direct_sends_paused" | "invalid_from_address" | "sandbox_from_locked" | "no_approved_brand_domain" | "from_domain_unverified" | "key_domain_scope" | "sender_not_permitted" | "display_name_id_not_found" | "display_name_id_wrong_domain" | "display_name_id_not_approved" | "display_name_not_approved" | "recipient_not_permitted" | "recipient_not_allowed" | "recipient_suppressed" | "recipient_opted_out" | "recipient_unsubscribed" | "template_id_required" | "template_not_found" | "layout_not_found" | "invalid_template" | "template_not_permitted" | "wrong_template_channel" | "template_unavailable" | "missing_variable" | "unknown_variable" | "list_too_long" | "invalid_variable" | "invalid_phone" | "brand_domain_not_found" | "body_too_long" | "no_carrier_available" | "marketing_limit_reached" | "sandbox_limit_reached" | "storage_limit_reached" | "key_limit_reached" | "insufficient_credit" | "unsupported_channel" | "feature_not_on_plan" | "verify_rate_limited" | "invalid_code_format" | "verification_not_found" | "verification_ended" | "message_not_found" | "batch_not_found" | "received_not_found" | "suppression_not_found" | "opt_out_not_found" | "unsubscribe_not_found" | "test_clock_not_found" | "webhook_not_found" | "team_not_found" | "approval_not_found" | "already_decided" | "internal_error" | "service_unavailable";

export interface AdvanceRequest {
  /** Seconds to advance; at most 60 days in total. */
  advance_s: number;
}

export interface Alignment {
  /** Whether DKIM authenticates the From domain. */
  dkim: boolean;
  /** Whether SPF authenticates the From domain. */
  spf: boolean;
  /** Whether DMARC passes: DKIM or SPF is sufficient. */
  passes: boolean;
  /** DMARC alignment mode for DKIM. */
  adkim: "relaxed" | "strict";
  /** DMARC alignment mode for SPF. */
  aspf: "relaxed" | "strict";
  /** DMARC policy for mail that fails; null without a policy. */
  policy: string | null;
}

export interface ApprovalDecision {
  /** Who decided: named in the audit log. */
  by: string;
}

export interface ApprovalList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<ApprovalRecord>;
}

export interface ApprovalRecord {
  /** Public id. */
  id: string;
  /** The message. */
  message_id: string;
  /** The team of the message. */
  team_id: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** When the message fails if nobody decides. */
  expires_at: string;
  /** `pending` until it is decided; `expired` if nobody decided in time; `canceled` with the message. */
  status: "pending" | "approved" | "rejected" | "expired" | "canceled";
}

export interface Attachment {
  /** Name of the file. */
  filename: string;
  /** The file as standard base64, padded, without white space. */
  content: string | Uint8Array;
  /** Media type; parameters such as `; charset=utf-8` are allowed. Optional if the filename extension implies it. Operators can allow more types (`attachment_types`). */
  content_type?: "application/json" | "application/msword" | "application/pdf" | "application/vnd.ms-excel" | "application/vnd.ms-powerpoint" | "application/vnd.openxmlformats-officedocument.presentationml.presentation" | "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" | "application/vnd.openxmlformats-officedocument.wordprocessingml.document" | "application/x-zip-compressed" | "application/zip" | "image/gif" | "image/jpeg" | "image/png" | "image/svg+xml" | "image/webp" | "text/calendar" | "text/csv" | "text/plain";
  /** Makes the file an inline part, `cid:…` in the HTML; unique within the message. */
  content_id?: string;
}

export interface AttachmentRecord {
  /** For `GET /v1/received/:id/attachments/:id`; unique within the mail. */
  id: string;
  /** File name given by the sender, without folders. */
  filename: string;
  /** Content type as declared by the sender. */
  content_type: string;
  /** Bytes, decoded. */
  size: number;
  /** Content-ID that `cid:` URLs in the HTML refer to. */
  content_id: string | null;
}

export interface AttemptRecord {
  /** Number of the attempt, from 1. */
  number: number;
  /** When the attempt was made. */
  at: string;
  /** HTTP status of the response; null if there was none. */
  status: number | null;
  /** Why there was no response; null if there was one. */
  error: string | null;
  /** Duration in milliseconds. */
  duration_ms: number;
  /** The first KB of the response body. */
  answer: string;
}

export interface AuditList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<AuditRecord>;
}

export interface AuditRecord {
  /** Type of this object. */
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
  /** SPF: whether the envelope sender's domain authorizes the sending server. */
  spf: "fail" | "none" | "pass" | "permerror" | "temperror";
  /** DKIM: whether a signature is valid. */
  dkim: "fail" | "none" | "pass" | "permerror" | "temperror";
  /** DMARC: whether SPF or DKIM passed for the domain in From. */
  dmarc: "fail" | "none" | "pass" | "permerror" | "temperror";
}

export interface BatchDoneData {
  /** Type of this object. */
  object: "batch";
  /** Public id. */
  id: string;
  /** Number of accepted messages; rejected ones are not counted. */
  total: number;
  /** Number of messages by status. */
  counts: Record<string, number>;
}

export interface BatchDoneEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "batch.done";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: BatchDoneData;
}

export interface BatchEntry {
  /** Public id of the message; absent if it was refused. */
  id?: string | null;
  /** Why the message was refused; absent if it was accepted. */
  error?: ErrorBody | null;
}

export interface BatchRecord {
  /** Type of this object. */
  object: "batch";
  /** Public id. */
  id: string;
  /** Number of accepted messages; rejected ones are not counted. */
  total: number;
  /** Number of messages by status. */
  counts: Record<string, number>;
}

export interface BatchResponse {
  /** Type of this object. */
  object: "batch";
  /** Public id. */
  id: string;
  /** One result per message, in request order. */
  data: Array<BatchEntry>;
}

export interface BoundsView {
  /** Maximum bytes of all parts together. */
  octets_max: number;
  /** Maximum SMS segments; null on other channels. */
  segments_max: number | null;
  /** Maximum price of one message, in the most expensive country. */
  price_max: string;
}

export interface CauseList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<ExplanationRecord>;
}

export interface CheckRecord {
  /** Public id. */
  id: string;
  /** `true` on the one call that brought the right code. */
  verified: boolean;
  /** Status of the verification. */
  status: "pending" | "verified" | "expired" | "exhausted" | "failed";
  /** Wrong codes left before exhaustion. */
  remaining_attempts: number;
}

export interface CheckRequest {
  /** The code as the user typed it, 4 to 10 characters. */
  code: string;
}

export interface CreditBooking {
  /** Type of this object. */
  object: "credit";
  /** ISO code of the billing currency. */
  currency: string;
  /** Available credit, without amounts on hold. */
  credit: string;
  /** Credit on hold for messages being sent. */
  held: string;
  /** The amount that was booked. */
  amount: string;
  /** Your reference. */
  reference: string;
  /** When it was booked. */
  created_at: string;
}

export interface CreditLowData {
  /** Available credit. */
  credit: string;
  /** Credit on hold for messages being sent. */
  held: string;
  /** The team's threshold for this event. */
  threshold: string;
}

export interface CreditLowEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "credit.low";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: CreditLowData;
}

export interface CreditRequest {
  /** Amount to add; a negative one is deducted. */
  amount: string;
  /** Your reference, such as an invoice number. It is booked once. */
  reference: string;
}

export interface CreditView {
  /** Type of this object. */
  object: "credit";
  /** ISO code of the billing currency. */
  currency: string;
  /** Available credit, without amounts on hold. */
  credit: string;
  /** Credit on hold for messages being sent. */
  held: string;
}

export interface DelayData {
  /** When the first attempt was deferred. */
  since: string;
  /** When the next attempt is made; null if a provider does not say. */
  next_attempt_at: string | null;
  /** When the email fails if it is not delivered before; null if unknown. */
  gives_up_at: string | null;
}

export interface DeletedMember {
  /** Type of this object. */
  object: "member";
  /** Id of the person. */
  id: string;
  /** Always `true`. */
  deleted: true;
}

export interface DeletedOptOut {
  /** Type of this object. */
  object: "opt_out";
  /** The phone number, in E.164. */
  phone: string;
  /** The channel given in the request; null for both. */
  channel: "sms" | "whatsapp" | null;
  /** Always `true`. */
  deleted: true;
}

export interface DeletedSuppression {
  /** Type of this object. */
  object: "suppression";
  /** The email address. */
  email: string;
  /** Always `true`. */
  deleted: true;
}

export interface DeletedUnsubscribe {
  /** Type of this object. */
  object: "unsubscribe";
  /** The recipient's email address. */
  address: string;
  /** The category given in the request; null for all. */
  category: string | null;
  /** Always `true`. */
  deleted: true;
}

export interface DeletedWebhook {
  /** Type of this object. */
  object: "webhook";
  /** Public id. */
  id: string;
  /** Always `true`. */
  deleted: true;
}

export interface DeliveryList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<DeliveryRecord>;
}

export interface DeliveryRecord {
  /** Id of the event. */
  event_id: string;
  /** The event's type. */
  type: "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "recipient.unsubscribed" | "recipient.resubscribed" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "message.held" | "webhook.test";
  /** `delivered`; `waiting` for the next attempt; or `exhausted`: all attempts failed. */
  state: "waiting" | "delivered" | "exhausted";
  /** When the next attempt is made; null after the last one. */
  next_attempt_at: string | null;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** Every attempt; kept for 30 days. */
  attempts: Array<AttemptRecord>;
}

export interface DmarcResults {
  /** Number of emails in all reports. */
  total: number;
  /** Emails that passed DMARC. */
  aligned: number;
  /** `aligned` divided by `total`; null without emails. */
  aligned_share: number | null;
  /** Most emails first, at most 1,000. */
  sources: Array<ReportSource>;
  /** Whether the domain is ready for `p=reject`. */
  reject: RejectAdvice;
}

export interface DomainFailedData {
  /** Public id. */
  id: string;
  /** The domain. */
  name: string;
  /** Whether the team has proved that the domain is its own. */
  verified: boolean;
}

export interface DomainFailedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "domain.failed";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: DomainFailedData;
}

export interface DomainList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<DomainView>;
}

export interface DomainReports {
  /** Always `reports`. */
  object: string;
  /** First day, UTC. */
  from: string;
  /** Last day, UTC, inclusive. */
  to: string;
  /** DMARC aggregate reports: mail that claims to be from this domain. */
  dmarc: DmarcResults;
  /** TLS reports: connections for mail to this domain. */
  tls: TlsResults;
}

export interface DomainRequest {
  /** The domain, such as `acme.test`. */
  name: string;
  /** Display name of mail from this domain. Default: the team's name. */
  brand?: string | null;
  /** How the DKIM keys are published: `cname` points to our zone, where keys are replaced without a change of your records; `txt` has the keys. Default: `cname` if the operator set `dkim_zone`. Also moves an existing domain. */
  dkim?: "cname" | "txt" | null;
  /** Your own key, with `txt`: PEM, RSA of at least 2,048 bits or Ed25519. */
  private_key?: string | null;
  /** The selector of `private_key`. */
  selector?: string | null;
}

export interface DomainVerifiedData {
  /** Public id. */
  id: string;
  /** The domain. */
  name: string;
  /** Whether the team has proved that the domain is its own. */
  verified: boolean;
}

export interface DomainVerifiedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "domain.verified";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: DomainVerifiedData;
}

export interface DomainView {
  /** Public id. */
  id: string;
  /** The domain name, in A-labels (punycode). */
  name: string;
  /** Display name of mail from this domain. */
  brand: string;
  /** How the DKIM keys are published: `cname` or `txt`. */
  dkim: "cname" | "txt";
  /** Whether the team may send from the domain, confirmed by DNS or by an operator. */
  verified: boolean;
  /** Whether an operator approved the domain. */
  approved: boolean;
  /** When DNS was last checked; null before the first check. */
  checked_at: string | null;
  /** The DNS records to set. */
  records: Array<RecordView>;
  /** Whether mail from this domain passes DMARC alignment; null before the first check. */
  alignment: Alignment | null;
}

export interface EmailBatchRequest {
  /** `strict`: the first refusal refuses all. `permissive`: what is not refused is sent. */
  mode?: "permissive" | "strict" | null;
  /** 1 to 500 sends, each as the endpoint for one takes it. */
  messages: Array<EmailRequest>;
}

export interface EmailBouncedData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Rendered subject. */
  subject: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The recipient's new state. */
  status: "bounced";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** Custom header fields of the request. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
  /** The carrier's reply, or Heliograph's own reason; absent if unknown. */
  bounce?: Record<string, unknown>;
  /** The same as `bounce`, if it has a `reason` of Heliograph's own. */
  detail?: Record<string, unknown>;
  /** What happened, and what to do about it. */
  explanation?: ExplanationRecord;
}

export interface EmailBouncedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "email.bounced";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: EmailBouncedData;
}

export interface EmailComplainedData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Rendered subject. */
  subject: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The recipient's new state. */
  status: "complained";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** Custom header fields of the request. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
  /** What happened, and what to do about it. */
  explanation?: ExplanationRecord;
}

export interface EmailComplainedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "email.complained";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: EmailComplainedData;
}

export interface EmailDelayedData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Rendered subject. */
  subject: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The recipient's new state. */
  status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** Custom header fields of the request. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
  /** Since when the email is delayed, and what happens next. */
  delay: DelayData;
  /** What happened, and what to do about it. */
  explanation?: ExplanationRecord;
}

export interface EmailDelayedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "email.delayed";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: EmailDelayedData;
}

export interface EmailDeliveredData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Rendered subject. */
  subject: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The recipient's new state. */
  status: "delivered";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** Custom header fields of the request. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
}

export interface EmailDeliveredEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "email.delivered";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: EmailDeliveredData;
}

export interface EmailFailedData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Rendered subject. */
  subject: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The recipient's new state. */
  status: "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** Custom header fields of the request. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
  /** The carrier's reply, or Heliograph's own reason; absent if unknown. */
  error?: Record<string, unknown>;
  /** The same as `error`, if it has a `reason` of Heliograph's own. */
  detail?: Record<string, unknown>;
  /** What happened, and what to do about it. */
  explanation?: ExplanationRecord;
}

export interface EmailFailedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "email.failed";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: EmailFailedData;
}

export interface EmailList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<EmailSummary>;
}

export interface EmailPreview {
  /** Always `true`: nothing was sent or written. */
  dry_run: true;
  /** The From header. */
  from: string;
  /** To recipients. */
  to: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Rendered subject. */
  subject: string;
  /** HTML body. */
  html: string | null;
  /** Plain-text body. */
  text: string | null;
  /** Number of attachments. */
  attachments_count: number;
  /** Version of the rendered template; null without a template. */
  template_version: number | null;
  /** Version of the layout used; null without a layout. */
  layout_version: number | null;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale: string | null;
  /** Price if sent now, in the team's currency. */
  price: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
}

export interface EmailReceivedData {
  /** Type of this object. */
  object: "received";
  /** Public id. */
  id: string;
  /** The address in From, without a display name. */
  from: string;
  /** The addresses in To. */
  to: Array<string>;
  /** The addresses in Cc. */
  cc: Array<string>;
  /** The team's addresses that received the mail. */
  recipients: Array<string>;
  /** The subject. */
  subject: string;
  /** The plain text; null if the mail has none or its content was deleted by retention. */
  text: string | null;
  /** The HTML. It is untrusted: sanitize it before showing it. */
  html: string | null;
  /** The sender's own text, without quoted mail. */
  reply_text: string | null;
  /** The Message-ID header; empty if missing. */
  message_id: string;
  /** The `eml_` id of the email that this mail replies to, from its signed Reply-To address. */
  in_reply_to: string | null;
  /** `true` if the mail was sent automatically: an auto-reply, a bounce, list mail or a mail loop. */
  automatic: boolean;
  /** All headers in order, as pairs of name and value. */
  headers: Array<Array<unknown>>;
  /** All parts other than the text and the HTML. */
  attachments: Array<AttachmentRecord>;
  /** Results of SPF, DKIM and DMARC. */
  authentication: Authentication;
  /** `true` if content was truncated; the full mail is at `GET /v1/received/:id` and `/raw`. */
  truncated: boolean;
}

export interface EmailReceivedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "email.received";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: EmailReceivedData;
}

export interface EmailRecord {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Rendered subject. */
  subject: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The state of the message. */
  status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface EmailRequest {
  /** Up to 10 name-value pairs for finding and counting messages. */
  tags?: Record<string, string> | null;
  /** Any JSON object of up to 4 KiB. Returned in reads and events, but not searchable. */
  metadata?: Record<string, unknown> | null;
  /** When to send the message: a time with an offset, up to 60 days ahead. A past time means now. */
  scheduled_at?: string | null;
  /** Deadline: a message not sent by then fails with the reason `expired`. */
  expires_at?: string | null;
  /** Sending order of due messages: `critical`, `normal`, `bulk`. Default: the template's, otherwise `normal`. */
  priority?: "bulk" | "critical" | "normal" | null;
  /** Language tag (BCP 47), such as `de-AT`. Falls back to `de`, then to the template's default. */
  locale?: string | null;
  /** One address or a list. To, Cc and Bcc together have at most 50. */
  to: string | Array<string>;
  /** Cc addresses, up to 50. */
  cc?: Array<string> | null;
  /** Bcc addresses, up to 50; they are in no header, and suppressed ones are dropped. */
  bcc?: Array<string> | null;
  /** Sets the Reply-To header: one address, or a list of up to 10. */
  reply_to?: string | Array<string> | null;
  /** `true` sets a signed Reply-To: replies are reported as `email.received` with this mail's id in `in_reply_to`. The team has an inbound address on a wildcard. Not together with `reply_to`. */
  replies?: boolean | null;
  /** Custom headers, up to 25 and 8 KiB in total: `X-…`, `List-Unsubscribe`, `List-Unsubscribe-Post`, `List-Id`, `In-Reply-To`, `References`, `Auto-Submitted`, `Feedback-ID`, `Importance`, `Priority`. */
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
  /** One of the team's categories: the email gets unsubscribe headers, and is refused if its recipient has unsubscribed. It has one recipient. Default: the template's category. */
  category?: string | null;
}

export interface EmailSendingData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Rendered subject. */
  subject: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The recipient's new state. */
  status: "sending";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** Custom header fields of the request. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
}

export interface EmailSendingEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "email.sending";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: EmailSendingData;
}

export interface EmailSentData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Rendered subject. */
  subject: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The recipient's new state. */
  status: "sent";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** Custom header fields of the request. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
}

export interface EmailSentEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "email.sent";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: EmailSentData;
}

export interface EmailSummary {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Rendered subject. */
  subject: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The state of the message. */
  status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** Custom header fields of the request. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
}

export interface EmailView {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The whole To list; its first entry equals `to`. */
  to_addresses: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc: Array<string>;
  /** Reply-To address. */
  reply_to: string | null;
  /** The sender's bare address. */
  from: string;
  /** Rendered subject. */
  subject: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count: number;
  /** Number of attachments. */
  attachments_count: number;
  /** The state of the message. */
  status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** Custom header fields of the request. */
  headers?: Record<string, string>;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version: number | null;
  /** Version of the layout used; null without a layout. */
  layout_version: number | null;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale: string | null;
  /** `true` if a simulator handled the message: nobody received it, whatever the status. */
  simulated: boolean;
  /** Each distinct recipient with its own state. */
  recipients: Array<RecipientView>;
  /** The timeline. */
  events: Array<EventView>;
  /** Set while all unfinished recipients are held: the first one that ends. */
  held: HeldView | null;
}

export interface Error {
  /** The error. */
  error: ErrorBody;
}

export interface ErrorBody {
  /** Kind of error, derived from the status and code. */
  type: "api_error" | "authentication_error" | "conflict_error" | "idempotency_error" | "invalid_request_error" | "not_found_error" | "permission_error" | "rate_limit_error";
  /** Stable error code for programs to compare. */
  code: "missing_api_key" | "invalid_api_key" | "wrong_cell" | "invalid_signature" | "callback_not_verified" | "team_suspended" | "insufficient_scope" | "restricted_key_required" | "channel_not_permitted" | "rate_limit_exceeded" | "not_found" | "method_not_allowed" | "payload_too_large" | "unsupported_media_type" | "invalid_json" | "invalid_request" | "invalid_idempotency_key" | "idempotency_key_reused" | "idempotency_request_in_progress" | "invalid_email" | "missing_body" | "mixed_send_mode" | "too_many_recipients" | "subject_too_long" | "invalid_subject" | "invalid_tags" | "invalid_metadata" | "invalid_schedule" | "already_sending" | "invalid_header" | "too_many_attachments" | "invalid_attachment" | "unsupported_attachment_type" | "attachment_too_large" | "attachments_too_large" | "direct_sends_paused" | "invalid_from_address" | "sandbox_from_locked" | "no_approved_brand_domain" | "from_domain_unverified" | "key_domain_scope" | "sender_not_permitted" | "display_name_id_not_found" | "display_name_id_wrong_domain" | "display_name_id_not_approved" | "display_name_not_approved" | "recipient_not_permitted" | "recipient_not_allowed" | "recipient_suppressed" | "recipient_opted_out" | "recipient_unsubscribed" | "template_id_required" | "template_not_found" | "layout_not_found" | "invalid_template" | "template_not_permitted" | "wrong_template_channel" | "template_unavailable" | "missing_variable" | "unknown_variable" | "list_too_long" | "invalid_variable" | "invalid_phone" | "brand_domain_not_found" | "body_too_long" | "no_carrier_available" | "marketing_limit_reached" | "sandbox_limit_reached" | "storage_limit_reached" | "key_limit_reached" | "insufficient_credit" | "unsupported_channel" | "feature_not_on_plan" | "verify_rate_limited" | "invalid_code_format" | "verification_not_found" | "verification_ended" | "message_not_found" | "batch_not_found" | "received_not_found" | "suppression_not_found" | "opt_out_not_found" | "unsubscribe_not_found" | "test_clock_not_found" | "webhook_not_found" | "team_not_found" | "approval_not_found" | "already_decided" | "internal_error" | "service_unavailable";
  /** What is wrong and how to fix it. */
  message: string;
  /** The invalid field or header; null if the error concerns the whole request. */
  param: string | null;
  /** Further data that some codes have. */
  details: Record<string, unknown> | null;
  /** Id of the request, as in X-Request-Id. */
  request_id: string;
  /** URL of the documentation of this code. */
  doc_url: string;
}

export interface ErrorEntry {
  /** The error code. */
  code: string;
  /** HTTP status of the response. */
  status: number;
  /** Error type. */
  type: string;
  /** What is wrong. */
  meaning: string;
  /** How to fix it. */
  fix: string;
}

export interface ErrorList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<ErrorEntry>;
}

export interface EventSchema {
  /** The JSON Schema dialect. */
  $schema: string;
  /** Name of the schema. */
  title: string;
  /** What the schema describes. */
  description: string;
  /** A reference to the schema of each event type. */
  oneOf: Array<Record<string, string>>;
  /** Schemas of the events, by event type. */
  $defs: Record<string, unknown>;
}

export interface EventView {
  /** Public id. */
  id: string;
  /** What happened, for example `email.delivered`. */
  type: string;
  /** The recipient whose state changed. */
  recipient: string | null;
  /** The recipient's new state. */
  status: string | null;
  /** The recipient's previous state. */
  previous_status: string | null;
  /** The state of the message after this event. */
  message_status: string | null;
  /** Number of the event within its message, starting at 1; null if it was not published. */
  sequence: number | null;
  /** Response of the carrier or content of the report: any JSON, or null. */
  detail: unknown | null;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** `true` if a simulator handled the message: nobody received it, whatever the status. */
  simulated: boolean;
}

export interface ExplanationRecord {
  /** Stable name of the cause: one of `GET /v1/causes`. */
  cause: string;
  /** What the cause relates to. */
  category: "recipient" | "content" | "policy" | "infrastructure" | "sender" | "carrier" | "limit";
  /** What happened, in plain English. */
  text: string;
  /** What to do about it. */
  advice: string;
  /** Whether resending the same message may succeed. */
  retry_helps: boolean;
}

export interface Health {
  /** Always `ok`. */
  status: "ok";
}

export interface HeldView {
  /** `provider_rate`: a provider's rate limit is reached; `warmup`: the day's limit of a new source address; `approval`: a person must release the message. */
  reason: "provider_rate" | "warmup" | "approval";
  /** When the message is retried, or fails if it is not approved. */
  until: string;
}

export interface InboxList {
  /** Type of this object. */
  object: "list";
  /** `true` if there is a next page: get it with `before` = the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<InboxView>;
}

export interface InboxView {
  /** Public id. */
  id: string;
  /** The channel; `verification` for a one-time code. */
  channel: "email" | "sms" | "whatsapp" | "verification";
  /** The recipients. */
  to: Array<string>;
  /** The sender; null if the carrier chooses it. */
  from: string | null;
  /** The subject of an email. */
  subject: string | null;
  /** The plain text; null if there is none or it is no longer stored. */
  text: string | null;
  /** The HTML of an email. */
  html: string | null;
  /** The one-time code found in the message, if any. */
  code: string | null;
  /** The links in the message, in order. */
  links: Array<string>;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface KeyList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<KeyRecord>;
}

export interface KeyRecord {
  /** Public id: the part of its token between `hk_` and the last `_`. */
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
  /** What it may send; null: no restrictions. */
  restrictions: RestrictionsRecord | null;
  /** Whether it signs hooks, such as Supabase's, and opens nothing else. */
  hook: boolean;
  /** Its last use, within a minute; null: never. */
  last_used_at: string | null;
}

export interface KeyRequest {
  /** What the key is for: one line of up to 200 characters, unique in the team. */
  name: string;
  /** What the key can do. Default: `send`. */
  scopes?: Array<"manage" | "send"> | null;
  /** Restricts the key to one of the team's domains. */
  domain?: string | null;
  /** When the key expires. Default: never. */
  expires_at?: string | null;
  /** Create a key that signs hooks, such as Supabase's. Default: false. */
  hook?: boolean | null;
  /** IP addresses or ranges that can use the key. Default: any. */
  networks?: Array<string> | null;
  /** Id (`tpl_…`) of a template with one variable, which receives the free text sent by Twilio clients. */
  passthrough?: string | null;
  /** What the key may send. Default: no restrictions. */
  restrictions?: RestrictionsRecord | null;
}

export interface LayoutChange {
  /** Name: one line of up to 200 characters. */
  name?: string | null;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  html?: string | null;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  text?: string | null;
}

export interface LayoutContent {
  /** Name of the layout. */
  name: string;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  html: string | null;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  text: string | null;
}

export interface LayoutList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<LayoutSummary>;
}

export interface LayoutRequest {
  /** Name: one line of up to 200 characters. */
  name?: string | null;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  html?: string | null;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  text?: string | null;
}

export interface LayoutSummary {
  /** Name of the layout. */
  name: string;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  html: string | null;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  text: string | null;
  /** Public id. */
  id: string;
  /** Templates can use approved layouts only. */
  status: "approved" | "draft" | "archived";
  /** Version number, starting at 1 and incremented by each approved change. */
  version: number;
  /** Content that is not approved yet; null without a draft. */
  draft: LayoutContent | null;
  /** When the draft was submitted for approval; null if it is not submitted. */
  submitted_at: string | null;
  /** Why an operator did not approve the draft. */
  refused_reason: string | null;
}

export interface LayoutVersion {
  /** Name of the layout. */
  name: string;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  html: string | null;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  text: string | null;
  /** Version number, starting at 1. */
  version: number;
  /** When this version was created; null for versions older than this field. */
  created_at: string | null;
}

export interface LayoutVersionList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<LayoutVersion>;
}

export interface LayoutView {
  /** Name of the layout. */
  name: string;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  html: string | null;
  /** Contains `{{content}}` once; may use `{{brand.name}}` and `{{brand.domain}}`. */
  text: string | null;
  /** Public id. */
  id: string;
  /** Templates can use approved layouts only. */
  status: "approved" | "draft" | "archived";
  /** Version number, starting at 1 and incremented by each approved change. */
  version: number;
  /** Content that is not approved yet; null without a draft. */
  draft: LayoutContent | null;
  /** When the draft was submitted for approval; null if it is not submitted. */
  submitted_at: string | null;
  /** Why an operator did not approve the draft. */
  refused_reason: string | null;
  /** Problems found in the newest version or draft. */
  problems: Array<ProblemView>;
}

export interface LimitView {
  /** Recipients permitted in the window. */
  limit: number;
  /** Recipients left now. */
  left: number;
  /** When the oldest use leaves the window; null: nothing is used. */
  resets_at: string | null;
}

export interface LimitsView {
  /** Recipients in any 60 minutes; null: not limited. */
  per_hour: LimitView | null;
  /** Recipients in any 24 hours; null: not limited. */
  per_day: LimitView | null;
  /** Spend in any 24 hours; null: not limited. */
  spend_per_day: SpendLimitView | null;
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
  /** Available credit, without amounts on hold. */
  credit: string;
  /** Credit on hold for messages being sent. */
  held: string;
  /** What this key may send; null: no restrictions. */
  restrictions: RestrictionsRecord | null;
  /** What is left of this key's limits; null: no restrictions. */
  limits: LimitsView | null;
}

export interface MemberList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<MemberRecord>;
}

export interface MemberRecord {
  /** Type of this object. */
  object: "member";
  /** Id of the person. */
  id: string;
  /** Email address. */
  email: string;
  /** Name. */
  name: string;
  /** Role in the team. */
  role: "viewer" | "developer" | "owner";
  /** `true` until the person accepts the invitation: the role is not in effect. */
  invited: boolean;
}

export interface MemberRequest {
  /** Email address of the person to invite. */
  email: string;
  /** Role in the team. */
  role: "viewer" | "developer" | "owner";
  /** Name of a new person. Default: the address. */
  name?: string | null;
}

export interface MessageHeldData {
  /** The whole To list. */
  to_addresses?: Array<string>;
  /** Cc recipients; empty if there are none. */
  cc?: Array<string>;
  /** Bcc recipients, without suppressed ones; empty if there are none. */
  bcc?: Array<string>;
  /** Reply-To address. */
  reply_to?: string | null;
  /** The sender's bare address. */
  from?: string;
  /** Rendered subject. */
  subject?: string;
  /** Number of To, Cc and Bcc recipients, without suppressed Bcc ones. Counts against the quota. */
  recipient_count?: number;
  /** Number of attachments. */
  attachments_count?: number;
  /** All Reply-To addresses. */
  reply_to_addresses?: Array<string>;
  /** Custom header fields of the request. */
  headers?: Record<string, string>;
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The state of the message; only WhatsApp has `read`. */
  status: "queued" | "sending" | "sent" | "delivered" | "read" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** The approval to decide on, by a person or by a platform key. */
  approval_id: string;
  /** Why and until when the message waits. */
  held: HeldView;
}

export interface MessageHeldEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "message.held";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: MessageHeldData;
}

export interface NewKeyRecord {
  /** Public id: the part of its token between `hk_` and the last `_`. */
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
  /** What it may send; null: no restrictions. */
  restrictions: RestrictionsRecord | null;
  /** Whether it signs hooks, such as Supabase's, and opens nothing else. */
  hook: boolean;
  /** Its last use, within a minute; null: never. */
  last_used_at: string | null;
  /** The key, `hk_…`, or a hook's secret, `v1,whsec_…`. Shown only in this response. */
  token: string;
}

export interface NewMemberRecord {
  /** Type of this object. */
  object: "member";
  /** Id of the person. */
  id: string;
  /** Email address. */
  email: string;
  /** Name. */
  name: string;
  /** Role in the team. */
  role: "viewer" | "developer" | "owner";
  /** `true` until the person accepts the invitation: the role is not in effect. */
  invited: boolean;
  /** Link with which the person accepts, valid once within 7 days. Shown only in this response; send it to nobody else. */
  url: string;
}

export interface NewWebhookRecord {
  /** Public id. */
  id: string;
  /** Where events are sent. */
  url: string;
  /** Event types, groups or `*` that the webhook subscribes to. */
  events: Array<"*" | "email.*" | "sms.*" | "whatsapp.*" | "verification.*" | "suppression.*" | "opt_out.*" | "recipient.*" | "domain.*" | "template.*" | "credit.*" | "batch.*" | "message.*" | "webhook.*" | "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "recipient.unsubscribed" | "recipient.resubscribed" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "message.held" | "webhook.test">;
  /** Whether events are delivered. */
  enabled: boolean;
  /** A free-text note. */
  description: string | null;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** Why Heliograph disabled the webhook automatically; null otherwise. */
  disabled_reason: string | null;
  /** Until when the previous secret also signs; null outside a rotation. */
  secret_rotates_until: string | null;
  /** Format of body, headers and signature. */
  format: "heliograph" | "postal" | "postmark" | "resend" | "twilio";
  /** Public key that verifies signatures of the `postal` format; null for other formats. */
  public_key: string | null;
  /** Signing secret, `whsec_…`. Shown only once. */
  secret: string;
}

export interface OptOutCreatedData {
  /** Type of this object. */
  object: "opt_out";
  /** Phone number in E.164 format. */
  phone: string;
  /** The channel of the opt-out. */
  channel: "sms" | "whatsapp";
  /** How the number opted out. */
  reason: "text" | "carrier" | "manual" | "marketing";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface OptOutCreatedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "opt_out.created";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: OptOutCreatedData;
}

export interface OptOutDeletedData {
  /** Type of this object. */
  object: "opt_out";
  /** Phone number in E.164 format. */
  phone: string;
  /** The channel of the opt-out. */
  channel: "sms" | "whatsapp";
  /** How the number opted out. */
  reason: "text" | "carrier" | "manual" | "marketing";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface OptOutDeletedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "opt_out.deleted";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: OptOutDeletedData;
}

export interface OptOutFields {
  /** Words that opt a phone out. */
  words?: Array<string> | null;
  /** Words that opt it in. */
  start_words?: Array<string> | null;
  /** Reply to an opt-out; empty for none. */
  stop_text?: string | null;
  /** Reply to an opt-in; empty for none. */
  start_text?: string | null;
  /** Reply to HELP; empty for none. */
  help_text?: string | null;
}

export interface OptOutList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<OptOutRecord>;
}

export interface OptOutRecord {
  /** Type of this object. */
  object: "opt_out";
  /** Channel and phone number; the cursor for `after`. */
  id: string;
  /** The phone number, in E.164. */
  phone: string;
  /** The channel that the number opted out of. */
  channel: "sms" | "whatsapp";
  /** How the number opted out: by a text message, reported by a carrier, or manually. */
  reason: "text" | "carrier" | "manual" | "marketing";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface OptOutRequest {
  /** The phone number, in E.164. */
  phone: string;
  /** The channel that the number opted out of. */
  channel: "sms" | "whatsapp";
}

export interface PhoneBatchRequest {
  /** `strict`: the first refusal refuses all. `permissive`: what is not refused is sent. */
  mode?: "permissive" | "strict" | null;
  /** 1 to 500 sends, each as the endpoint for one takes it. */
  messages: Array<PhoneRequest>;
}

export interface PhoneList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<PhoneSummary>;
}

export interface PhoneRecord {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The state of the message; only WhatsApp has `read`. */
  status: "queued" | "sending" | "sent" | "delivered" | "read" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface PhoneRequest {
  /** Up to 10 name-value pairs for finding and counting messages. */
  tags?: Record<string, string> | null;
  /** Any JSON object of up to 4 KiB. Returned in reads and events, but not searchable. */
  metadata?: Record<string, unknown> | null;
  /** When to send the message: a time with an offset, up to 60 days ahead. A past time means now. */
  scheduled_at?: string | null;
  /** Deadline: a message not sent by then fails with the reason `expired`. */
  expires_at?: string | null;
  /** Sending order of due messages: `critical`, `normal`, `bulk`. Default: the template's, otherwise `normal`. */
  priority?: "bulk" | "critical" | "normal" | null;
  /** Language tag (BCP 47), such as `de-AT`. Falls back to `de`, then to the template's default. */
  locale?: string | null;
  /** Phone number in E.164 format, for example `+14155550123`. */
  to: string;
  /** `tpl_` id of an approved template of this channel. */
  template_id: string;
  /** Values of the template's `customer.*` variables, by name. */
  variables?: Variables | null;
  /** `dom_` id of the verified domain whose brand the template shows. */
  brand_domain_id?: string | null;
}

export interface PhoneSummary {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The state of the message; only WhatsApp has `read`. */
  status: "queued" | "sending" | "sent" | "delivered" | "read" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
}

export interface PhoneView {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The state of the message; only WhatsApp has `read`. */
  status: "queued" | "sending" | "sent" | "delivered" | "read" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version: number | null;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale: string | null;
  /** `true` if a simulator handled the message: nobody received it, whatever the status. */
  simulated: boolean;
  /** Each distinct recipient with its own state. */
  recipients: Array<RecipientView>;
  /** The timeline. */
  events: Array<EventView>;
  /** Set while all unfinished recipients are held: the first one that ends. */
  held: HeldView | null;
}

export interface PlatformMe {
  /** A platform key belongs to no team. */
  team: null;
  /** What the key may do. */
  scopes: Array<"operate">;
}

export interface PortalLinkRecord {
  /** Type of this object. */
  object: "portal_link";
  /** Link that opens the portal, once. Shown only in this response. */
  url: string;
  /** Until when the link can be opened. */
  expires_at: string;
}

export interface PortalRequest {
  /** Pages of the team that the portal shows. */
  pages: Array<"domains" | "events" | "keys" | "webhooks">;
  /** Where the portal's Back link leads: an https URL, or http on the same machine. Default: no such link. */
  return_url?: string | null;
}

export interface Problem {
  /** URL of the documentation of this code. */
  type: string;
  /** Meaning of the code. */
  title: string;
  /** The HTTP status. */
  status: number;
  /** What is wrong and how to fix it. */
  detail: string;
  /** This request, as a URN. */
  instance: string;
  /** Stable error code for programs to compare. */
  code: "missing_api_key" | "invalid_api_key" | "wrong_cell" | "invalid_signature" | "callback_not_verified" | "team_suspended" | "insufficient_scope" | "restricted_key_required" | "channel_not_permitted" | "rate_limit_exceeded" | "not_found" | "method_not_allowed" | "payload_too_large" | "unsupported_media_type" | "invalid_json" | "invalid_request" | "invalid_idempotency_key" | "idempotency_key_reused" | "idempotency_request_in_progress" | "invalid_email" | "missing_body" | "mixed_send_mode" | "too_many_recipients" | "subject_too_long" | "invalid_subject" | "invalid_tags" | "invalid_metadata" | "invalid_schedule" | "already_sending" | "invalid_header" | "too_many_attachments" | "invalid_attachment" | "unsupported_attachment_type" | "attachment_too_large" | "attachments_too_large" | "direct_sends_paused" | "invalid_from_address" | "sandbox_from_locked" | "no_approved_brand_domain" | "from_domain_unverified" | "key_domain_scope" | "sender_not_permitted" | "display_name_id_not_found" | "display_name_id_wrong_domain" | "display_name_id_not_approved" | "display_name_not_approved" | "recipient_not_permitted" | "recipient_not_allowed" | "recipient_suppressed" | "recipient_opted_out" | "recipient_unsubscribed" | "template_id_required" | "template_not_found" | "layout_not_found" | "invalid_template" | "template_not_permitted" | "wrong_template_channel" | "template_unavailable" | "missing_variable" | "unknown_variable" | "list_too_long" | "invalid_variable" | "invalid_phone" | "brand_domain_not_found" | "body_too_long" | "no_carrier_available" | "marketing_limit_reached" | "sandbox_limit_reached" | "storage_limit_reached" | "key_limit_reached" | "insufficient_credit" | "unsupported_channel" | "feature_not_on_plan" | "verify_rate_limited" | "invalid_code_format" | "verification_not_found" | "verification_ended" | "message_not_found" | "batch_not_found" | "received_not_found" | "suppression_not_found" | "opt_out_not_found" | "unsubscribe_not_found" | "test_clock_not_found" | "webhook_not_found" | "team_not_found" | "approval_not_found" | "already_decided" | "internal_error" | "service_unavailable";
  /** The invalid field or header; null if the error concerns the whole request. */
  param: string | null;
  /** Id of the request, as in X-Request-Id. */
  request_id: string;
}

export interface ProblemView {
  /** Severity: an error prevents saving, a warning does not. */
  level: "error" | "warning";
  /** Machine-readable problem code. */
  code: string;
  /** The template field with the problem. */
  part: string;
  /** Language of the part; null for the default language. */
  locale: string | null;
  /** Line of the part, starting at 1; null if the problem concerns the whole part. */
  line: number | null;
  /** Description of the problem. */
  text: string;
}

export interface PublishedEvent {
  /** Public id. */
  id: string;
  /** What happened, for example `email.delivered`. */
  type: "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "recipient.unsubscribed" | "recipient.resubscribed" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "message.held" | "webhook.test";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** The changed record, with its new `status`. */
  data: Record<string, unknown>;
}

export interface PublishedEventList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<PublishedEvent>;
}

export interface QuotaView {
  /** Emails included in the plan. */
  limit: number;
  /** Emails used. */
  used: number;
}

export interface ReceivedList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<ReceivedRecord>;
}

export interface ReceivedRecord {
  /** Type of this object. */
  object: "received";
  /** Public id. */
  id: string;
  /** The address in From, without a display name. */
  from: string;
  /** The addresses in To. */
  to: Array<string>;
  /** The addresses in Cc. */
  cc: Array<string>;
  /** The team's addresses that received the mail. */
  recipients: Array<string>;
  /** The subject. */
  subject: string;
  /** The plain text; null if the mail has none or its content was deleted by retention. */
  text: string | null;
  /** The HTML. It is untrusted: sanitize it before showing it. */
  html: string | null;
  /** The sender's own text, without quoted mail. */
  reply_text: string | null;
  /** The Message-ID header; empty if missing. */
  message_id: string;
  /** The `eml_` id of the email that this mail replies to, from its signed Reply-To address. */
  in_reply_to: string | null;
  /** `true` if the mail was sent automatically: an auto-reply, a bounce, list mail or a mail loop. */
  automatic: boolean;
  /** All headers in order, as pairs of name and value. */
  headers: Array<Array<unknown>>;
  /** All parts other than the text and the HTML. */
  attachments: Array<AttachmentRecord>;
  /** Results of SPF, DKIM and DMARC. */
  authentication: Authentication;
  /** `true` if content was truncated; the full mail is at `GET /v1/received/:id` and `/raw`. */
  truncated: boolean;
}

export interface RecipientResubscribedData {
  /** Type of this object. */
  object: "unsubscribe";
  /** The recipient's email address. */
  address: string;
  /** The category of emails. */
  category: string;
  /** How the recipient unsubscribed. */
  reason: "link" | "mail" | "manual";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface RecipientResubscribedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "recipient.resubscribed";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: RecipientResubscribedData;
}

export interface RecipientUnsubscribedData {
  /** Type of this object. */
  object: "unsubscribe";
  /** The recipient's email address. */
  address: string;
  /** The category of emails. */
  category: string;
  /** How the recipient unsubscribed. */
  reason: "link" | "mail" | "manual";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface RecipientUnsubscribedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "recipient.unsubscribed";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: RecipientUnsubscribedData;
}

export interface RecipientView {
  /** Email address or phone. */
  address: string;
  /** Header in which the recipient was addressed. */
  kind: "to" | "cc" | "bcc";
  /** The state of this recipient. */
  status: string;
  /** When the state last changed. */
  updated_at: string;
  /** Response of the carrier or content of the report: any JSON, or null. */
  detail: unknown | null;
  /** Why the message was not delivered, or is delayed; null otherwise. */
  explanation: ExplanationRecord | null;
  /** `true` if a simulator handled the message: nobody received it, whatever the status. */
  simulated: boolean;
  /** Mailbox provider of an email address, or `other`; null for a phone. */
  provider: string | null;
  /** Why and until when the recipient waits for its turn; null otherwise. */
  held: HeldView | null;
}

export interface RecordView {
  /** Record type: TXT, CNAME or MX. */
  type: string;
  /** Record name. */
  name: string;
  /** Record value. */
  value: string;
  /** What the record is for: ownership, dkim, return_path, spf, dmarc or tls_reports. */
  purpose: string;
  /** Whether the record was found at the last check; null if it was not checked or DNS did not answer. */
  ok: boolean | null;
  /** Values found in DNS. */
  found: Array<string>;
  /** How to fix the record; empty if nothing is wrong. */
  fix: string;
}

export interface RejectAdvice {
  /** Whether the policy `p=reject` would not affect mail that is sent correctly. */
  safe: boolean;
  /** Why it is not safe; empty if it is. */
  reasons: Array<string>;
}

export interface RenderRequest {
  /** Values of the template's `customer.*` variables, by name. */
  variables?: Variables | null;
  /** Language tag (BCP 47), such as `de-AT`. Falls back to `de`, then to the template's default. */
  locale?: string | null;
  /** Phone number whose country determines the price. SMS and WhatsApp templates only. */
  to?: string | null;
}

export interface RenderView {
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Subject as delivered. */
  subject: string | null;
  /** HTML body. */
  html: string | null;
  /** Plain-text body. */
  text: string | null;
  /** Rendered text. */
  body: string | null;
  /** Number of billed segments of the SMS; null for other channels. */
  segments: number | null;
  /** Encoding of the SMS; null for other channels. */
  encoding: "gsm7" | "ucs2" | null;
  /** Price if sent now, in the team's currency. */
  price: string;
  /** Required variables that were not given. */
  missing: Array<string>;
  /** Given variables that the template does not declare. */
  unknown: Array<string>;
  /** Upper limits for any allowed values; null unless every variable declares a `max_length`. */
  bounds: BoundsView | null;
}

export interface Replay {
  /** Type of this object. */
  object: "replay";
  /** Number of events that are replayed. */
  count: number;
}

export type ReplayRequest = { /** Id of an event to replay. */ event_id: string; } | { event_ids: Array<string>; } | { /** Start of the time range, exclusive. */ created_after: string; /** End of the time range, exclusive. */ created_before: string; /** Only events that were not delivered. */ failed_only?: boolean | null; };

export interface ReportSource {
  /** IP address that sent the mail. */
  address: string;
  /** Whether the address is a source address of this service, or passed SPF for its return path. */
  known: boolean;
  /** Number of emails. */
  total: number;
  /** Emails that passed DMARC. */
  aligned: number;
  /** Emails with aligned DKIM. */
  dkim: number;
  /** Emails with aligned SPF. */
  spf: number;
}

export interface RescheduleRequest {
  /** The new time, up to 60 days ahead; a past one means now. */
  scheduled_at: string;
}

export interface RestrictionsRecord {
  /** Channels that the key may use. */
  channels?: Array<"*" | "email" | "sms" | "verify" | "whatsapp"> | null;
  /** Sender addresses of emails: addresses, `*@domain` or `*`. */
  senders?: Array<string> | null;
  /** Recipients in To, Cc, Bcc, phones and verifications: addresses, `*@domain`, E.164 numbers, prefixes such as `+49*`, or `*`. */
  recipients?: Array<string> | null;
  /** Template ids; emails without a template are then refused. `*`: all, and no template. */
  templates?: Array<string> | null;
  /** Recipients in any 60 minutes. */
  per_hour?: number | null;
  /** Recipients in any 24 hours. */
  per_day?: number | null;
  /** Amount charged or held in any 24 hours. */
  spend_per_day?: string | null;
  /** `required`: every message is held until a person releases it; verifications are refused. */
  approval?: "required" | null;
}

export interface SmsDeliveredData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The recipient's new state. */
  status: "delivered";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
}

export interface SmsDeliveredEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "sms.delivered";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: SmsDeliveredData;
}

export interface SmsFailedData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The recipient's new state. */
  status: "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
  /** The carrier's reply, or Heliograph's own reason; absent if unknown. */
  error?: Record<string, unknown>;
  /** The same as `error`, if it has a `reason` of Heliograph's own. */
  detail?: Record<string, unknown>;
  /** What happened, and what to do about it. */
  explanation?: ExplanationRecord;
}

export interface SmsFailedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "sms.failed";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: SmsFailedData;
}

export interface SmsPreview {
  /** Always `true`: nothing was sent or written. */
  dry_run: true;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** ISO code of the phone number's country; null if no country uses the prefix. */
  country: string | null;
  /** The sender that the phone shows. */
  sender_id: string;
  /** Rendered text. */
  body: string;
  /** Encoding of the SMS; null for other channels. */
  encoding: "gsm7" | "ucs2";
  /** Number of billed segments of the SMS; null for other channels. */
  segments: number;
  /** Version of the rendered template; null without a template. */
  template_version: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale: string | null;
  /** Price if sent now, in the team's currency. */
  price: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
}

export interface SmsReceivedData {
  /** Type of this object. */
  object: "received";
  /** Public id. */
  id: string;
  /** The sender's phone number. */
  from: string;
  /** The team's number or sender ID. */
  to: string;
  /** The text. */
  text: string;
  /** Id of the carrier that reported the text. */
  carrier: string;
  /** `true` if parts of a long text are missing. */
  incomplete?: boolean;
}

export interface SmsReceivedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "sms.received";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: SmsReceivedData;
}

export interface SmsSendingData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The recipient's new state. */
  status: "sending";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
}

export interface SmsSendingEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "sms.sending";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: SmsSendingData;
}

export interface SmsSentData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The recipient's new state. */
  status: "sent";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
}

export interface SmsSentEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "sms.sent";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: SmsSentData;
}

export interface SpendLimitView {
  /** Amount permitted in the window. */
  limit: string;
  /** Amount left now. */
  left: string;
  /** When the oldest charge leaves the window; null: nothing is spent. */
  resets_at: string | null;
}

export interface SuppressionCreatedData {
  /** The email address. */
  email: string;
  /** Why the address is or was suppressed. */
  reason: "bounce" | "complaint" | "manual";
  /** The message that bounced or caused the complaint. */
  source_message_id: string | null;
  /** Response of the carrier or content of the report: any JSON, or null. */
  detail: unknown | null;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface SuppressionCreatedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "suppression.created";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: SuppressionCreatedData;
}

export interface SuppressionDeletedData {
  /** The email address. */
  email: string;
  /** Why the address is or was suppressed. */
  reason: "bounce" | "complaint" | "manual";
  /** The message that bounced or caused the complaint. */
  source_message_id: string | null;
  /** Response of the carrier or content of the report: any JSON, or null. */
  detail: unknown | null;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface SuppressionDeletedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "suppression.deleted";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: SuppressionDeletedData;
}

export interface SuppressionList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<SuppressionRecord>;
}

export interface SuppressionRecord {
  /** The email address. */
  email: string;
  /** Why it is suppressed. */
  reason: "bounce" | "complaint" | "manual";
  /** The message that bounced or caused the complaint. */
  source_message_id: string | null;
  /** Response of the carrier or content of the report: any JSON, or null. */
  detail: unknown | null;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface SuppressionRequest {
  /** The address to suppress. */
  email: string;
  /** Why the address is suppressed. Default: `manual`. */
  reason?: "bounce" | "complaint" | "manual" | null;
}

export interface TeamChange {
  /** Name, which recipients see. Default: the id. */
  name?: string | null;
  /** `sandbox` (default) or `live`. */
  mode?: "sandbox" | "live" | null;
  /** Whether every request of its keys is refused. */
  suspended?: boolean | null;
  /** ISO code of the billing currency. Default: USD. */
  currency?: string | null;
  /** Recipients of emails a month included in the plan. */
  email_quota?: number | null;
  /** Features of the plan: `verify`. */
  features?: Array<"verify"> | null;
  /** Requests a second per key; 0 for no limit. */
  rate_limit?: number | null;
  /** How long SMS are split into segments. */
  segmenting?: "spec" | "udh" | null;
  /** Settings of verification codes. */
  verify?: VerifyFields | null;
  /** Opt-out words and their replies. */
  opt_out?: OptOutFields | null;
  /** WhatsApp marketing messages a day per recipient. */
  marketing_per_day?: number | null;
  /** Credit below which `credit.low` is published; 0 for never. */
  credit_low?: string | null;
  /** Bytes that can be stored a day; 0 for no limit. Default: that of the mode. */
  octets_per_day?: number | null;
  /** Domains that the team can add. */
  domains_max?: number | null;
  /** Days that contents are kept. */
  keep_content_days?: number | null;
  /** Days that messages are kept: at least as long as contents. */
  keep_messages_days?: number | null;
  /** Id (`tpl_…`) of a template with one variable, which receives free text. */
  passthrough?: string | null;
  /** Sandbox only: messages sent by compatibility APIs or SMTP are only captured in the test inbox. */
  catch?: boolean | null;
  /** Sandbox only: the team controls its own clock. */
  test_clock?: boolean | null;
  /** Additional attachment types, such as `application/zip`. */
  attachment_types?: Array<string> | null;
  /** Pool of source addresses for direct email. */
  pool?: string | null;
  /** Categories of emails that recipients can unsubscribe from; those of approved templates must stay. */
  categories?: Array<string> | null;
  /** Hours after which a message that waits for approval fails. */
  approval_hours?: number | null;
}

export interface TeamDetails {
  /** Name, which recipients see. Default: the id. */
  name: string | null;
  /** `sandbox` (default) or `live`. */
  mode: "sandbox" | "live" | null;
  /** Whether every request of its keys is refused. */
  suspended: boolean | null;
  /** ISO code of the billing currency. Default: USD. */
  currency: string | null;
  /** Recipients of emails a month included in the plan. */
  email_quota: number | null;
  /** Features of the plan: `verify`. */
  features: Array<"verify"> | null;
  /** Requests a second per key; 0 for no limit. */
  rate_limit: number | null;
  /** How long SMS are split into segments. */
  segmenting: "spec" | "udh" | null;
  /** Settings of verification codes. */
  verify: VerifyFields | null;
  /** Opt-out words and their replies. */
  opt_out: OptOutFields | null;
  /** WhatsApp marketing messages a day per recipient. */
  marketing_per_day: number | null;
  /** Credit below which `credit.low` is published; 0 for never. */
  credit_low: string | null;
  /** Bytes that can be stored a day; 0 for no limit. Default: that of the mode. */
  octets_per_day: number | null;
  /** Domains that the team can add. */
  domains_max: number | null;
  /** Days that contents are kept. */
  keep_content_days: number | null;
  /** Days that messages are kept: at least as long as contents. */
  keep_messages_days: number | null;
  /** Id (`tpl_…`) of a template with one variable, which receives free text. */
  passthrough: string | null;
  /** Sandbox only: messages sent by compatibility APIs or SMTP are only captured in the test inbox. */
  catch: boolean | null;
  /** Sandbox only: the team controls its own clock. */
  test_clock: boolean | null;
  /** Additional attachment types, such as `application/zip`. */
  attachment_types: Array<string> | null;
  /** Pool of source addresses for direct email. */
  pool: string | null;
  /** Categories of emails that recipients can unsubscribe from; those of approved templates must stay. */
  categories: Array<string> | null;
  /** Hours after which a message that waits for approval fails. */
  approval_hours: number | null;
  /** Type of this object. */
  object: "team";
  /** Public id. */
  id: string;
  /** Available credit, without amounts on hold. */
  credit: string;
  /** Credit on hold for messages being sent. */
  held: string;
  /** When the team is deleted with all its data; null if it is not to be deleted. */
  deletes_at: string | null;
}

export interface TeamList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<TeamDetails>;
}

export interface TeamRequest {
  /** Name, which recipients see. Default: the id. */
  name?: string | null;
  /** `sandbox` (default) or `live`. */
  mode?: "sandbox" | "live" | null;
  /** Whether every request of its keys is refused. */
  suspended?: boolean | null;
  /** ISO code of the billing currency. Default: USD. */
  currency?: string | null;
  /** Recipients of emails a month included in the plan. */
  email_quota?: number | null;
  /** Features of the plan: `verify`. */
  features?: Array<"verify"> | null;
  /** Requests a second per key; 0 for no limit. */
  rate_limit?: number | null;
  /** How long SMS are split into segments. */
  segmenting?: "spec" | "udh" | null;
  /** Settings of verification codes. */
  verify?: VerifyFields | null;
  /** Opt-out words and their replies. */
  opt_out?: OptOutFields | null;
  /** WhatsApp marketing messages a day per recipient. */
  marketing_per_day?: number | null;
  /** Credit below which `credit.low` is published; 0 for never. */
  credit_low?: string | null;
  /** Bytes that can be stored a day; 0 for no limit. Default: that of the mode. */
  octets_per_day?: number | null;
  /** Domains that the team can add. */
  domains_max?: number | null;
  /** Days that contents are kept. */
  keep_content_days?: number | null;
  /** Days that messages are kept: at least as long as contents. */
  keep_messages_days?: number | null;
  /** Id (`tpl_…`) of a template with one variable, which receives free text. */
  passthrough?: string | null;
  /** Sandbox only: messages sent by compatibility APIs or SMTP are only captured in the test inbox. */
  catch?: boolean | null;
  /** Sandbox only: the team controls its own clock. */
  test_clock?: boolean | null;
  /** Additional attachment types, such as `application/zip`. */
  attachment_types?: Array<string> | null;
  /** Pool of source addresses for direct email. */
  pool?: string | null;
  /** Categories of emails that recipients can unsubscribe from; those of approved templates must stay. */
  categories?: Array<string> | null;
  /** Hours after which a message that waits for approval fails. */
  approval_hours?: number | null;
  /** Id of your choice. Default: a generated one. */
  id?: string | null;
  /** Opening balance. Default: 0. */
  credit?: string | null;
}

export interface TeamView {
  /** Public id. */
  id: string;
  /** Name of the team. */
  name: string;
}

export interface TemplateChange {
  /** Name: one line of up to 200 characters. */
  name?: string | null;
  /** Email subject. */
  subject?: string | null;
  /** Email HTML body. */
  html?: string | null;
  /** Email plain-text body. */
  text?: string | null;
  /** Text of an SMS or WhatsApp message. */
  body?: string | null;
  /** Category of a WhatsApp template. */
  category?: "AUTHENTICATION" | "UTILITY" | "MARKETING" | null;
  /** Language of a WhatsApp template, as Meta's language code. */
  language?: string | null;
  /** Name of a WhatsApp template at Meta. Default: `name`. */
  upstream_name?: string | null;
  /** Variable names, or objects `{"name", "list", "max", "max_length"}`, in order. */
  variables?: Array<string | Record<string, unknown>> | null;
  /** Variables that can be omitted. */
  optional?: Array<string> | null;
  /** Language of the main parts. Default: `en`. */
  locale?: string | null;
  /** Parts in other languages, by BCP 47 tag. */
  locales?: Record<string, Record<string, string>> | null;
  /** Time zone used to format dates and times, such as `Europe/Vienna`. Default: `UTC`. */
  timezone?: string | null;
  /** Id of the layout around html and text. */
  layout?: string | null;
  /** Example values for previews. */
  examples?: Record<string, string> | null;
}

export interface TemplateContent {
  /** Name of the template. */
  name: string;
  /** Email subject. */
  subject: string | null;
  /** Email HTML body. */
  html: string | null;
  /** Email plain-text body. */
  text: string | null;
  /** Text of an SMS or WhatsApp message. */
  body: string | null;
  /** Category of a WhatsApp template. */
  category: string | null;
  /** Language of a WhatsApp template. */
  language: string | null;
  /** Name of a WhatsApp template at Meta; null if it equals `name`. */
  upstream_name: string | null;
  /** Variable names, or objects `{"name", "list", "max", "max_length"}`, in order. */
  variables: Array<string | Record<string, unknown>>;
  /** Variables that can be omitted. */
  optional: Array<string>;
  /** Language of the main parts. */
  locale: string;
  /** Parts in other languages, by BCP 47 tag. */
  locales: Record<string, Record<string, string>>;
  /** Time zone used to format dates and times. */
  timezone: string;
  /** Id of the layout around html and text. */
  layout: string | null;
}

export interface TemplateList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<TemplateSummary>;
}

export interface TemplateRequest {
  /** Name: one line of up to 200 characters. */
  name?: string | null;
  /** Email subject. */
  subject?: string | null;
  /** Email HTML body. */
  html?: string | null;
  /** Email plain-text body. */
  text?: string | null;
  /** Text of an SMS or WhatsApp message. */
  body?: string | null;
  /** Category of a WhatsApp template. */
  category?: "AUTHENTICATION" | "UTILITY" | "MARKETING" | null;
  /** Language of a WhatsApp template, as Meta's language code. */
  language?: string | null;
  /** Name of a WhatsApp template at Meta. Default: `name`. */
  upstream_name?: string | null;
  /** Variable names, or objects `{"name", "list", "max", "max_length"}`, in order. */
  variables?: Array<string | Record<string, unknown>> | null;
  /** Variables that can be omitted. */
  optional?: Array<string> | null;
  /** Language of the main parts. Default: `en`. */
  locale?: string | null;
  /** Parts in other languages, by BCP 47 tag. */
  locales?: Record<string, Record<string, string>> | null;
  /** Time zone used to format dates and times, such as `Europe/Vienna`. Default: `UTC`. */
  timezone?: string | null;
  /** Id of the layout around html and text. */
  layout?: string | null;
  /** Example values for previews. */
  examples?: Record<string, string> | null;
  /** The channel. */
  channel: "email" | "sms" | "whatsapp";
}

export interface TemplateStatusChangedData {
  /** Type of this object. */
  object: "template";
  /** Public id. */
  id: string;
  /** The template's name. */
  name: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** The template's name at Meta. */
  upstream_name: string;
  /** The template's language at Meta. */
  language: string;
  /** Meta's status. */
  upstream_status: string;
  /** Meta's reason for the status. */
  upstream_reason: string | null;
  /** Meta's quality rating. */
  upstream_quality: string | null;
  /** Meta's status before this event. */
  previous_upstream_status: string | null;
}

export interface TemplateStatusChangedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "template.status_changed";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: TemplateStatusChangedData;
}

export interface TemplateSummary {
  /** Name of the template. */
  name: string;
  /** Email subject. */
  subject: string | null;
  /** Email HTML body. */
  html: string | null;
  /** Email plain-text body. */
  text: string | null;
  /** Text of an SMS or WhatsApp message. */
  body: string | null;
  /** Category of a WhatsApp template. */
  category: string | null;
  /** Language of a WhatsApp template. */
  language: string | null;
  /** Name of a WhatsApp template at Meta; null if it equals `name`. */
  upstream_name: string | null;
  /** Variable names, or objects `{"name", "list", "max", "max_length"}`, in order. */
  variables: Array<string | Record<string, unknown>>;
  /** Variables that can be omitted. */
  optional: Array<string>;
  /** Language of the main parts. */
  locale: string;
  /** Parts in other languages, by BCP 47 tag. */
  locales: Record<string, Record<string, string>>;
  /** Time zone used to format dates and times. */
  timezone: string;
  /** Id of the layout around html and text. */
  layout: string | null;
  /** Public id. */
  id: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Only approved templates can be sent. */
  status: "approved" | "draft" | "archived";
  /** Version number, starting at 1 and incremented by each approved change. */
  version: number;
  /** Price of one message, or of one SMS segment. */
  price: string;
  /** Prices by ISO country code. */
  prices: Record<string, string>;
  /** Approval status last reported by Meta for a WhatsApp template; null if none was reported. */
  upstream_status: "approved" | "pending" | "rejected" | "paused" | "disabled" | null | null;
  /** Reason given by Meta. */
  upstream_reason: string | null;
  /** Quality rating given by Meta, such as `green` or `red`. */
  upstream_quality: string | null;
  /** Content that is not approved yet; null without a draft. */
  draft: TemplateContent | null;
  /** When the draft was submitted for approval; null if it is not submitted. */
  submitted_at: string | null;
  /** Why an operator did not approve the draft. */
  refused_reason: string | null;
}

export interface TemplateView {
  /** Name of the template. */
  name: string;
  /** Email subject. */
  subject: string | null;
  /** Email HTML body. */
  html: string | null;
  /** Email plain-text body. */
  text: string | null;
  /** Text of an SMS or WhatsApp message. */
  body: string | null;
  /** Category of a WhatsApp template. */
  category: string | null;
  /** Language of a WhatsApp template. */
  language: string | null;
  /** Name of a WhatsApp template at Meta; null if it equals `name`. */
  upstream_name: string | null;
  /** Variable names, or objects `{"name", "list", "max", "max_length"}`, in order. */
  variables: Array<string | Record<string, unknown>>;
  /** Variables that can be omitted. */
  optional: Array<string>;
  /** Language of the main parts. */
  locale: string;
  /** Parts in other languages, by BCP 47 tag. */
  locales: Record<string, Record<string, string>>;
  /** Time zone used to format dates and times. */
  timezone: string;
  /** Id of the layout around html and text. */
  layout: string | null;
  /** Public id. */
  id: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Only approved templates can be sent. */
  status: "approved" | "draft" | "archived";
  /** Version number, starting at 1 and incremented by each approved change. */
  version: number;
  /** Price of one message, or of one SMS segment. */
  price: string;
  /** Prices by ISO country code. */
  prices: Record<string, string>;
  /** Approval status last reported by Meta for a WhatsApp template; null if none was reported. */
  upstream_status: "approved" | "pending" | "rejected" | "paused" | "disabled" | null | null;
  /** Reason given by Meta. */
  upstream_reason: string | null;
  /** Quality rating given by Meta, such as `green` or `red`. */
  upstream_quality: string | null;
  /** Content that is not approved yet; null without a draft. */
  draft: TemplateContent | null;
  /** When the draft was submitted for approval; null if it is not submitted. */
  submitted_at: string | null;
  /** Why an operator did not approve the draft. */
  refused_reason: string | null;
  /** Problems found in the newest version or draft. */
  problems: Array<ProblemView>;
}

export interface TestClockRecord {
  /** Type of this object. */
  object: "test_clock";
  /** The team's time. */
  now: string;
  /** Seconds ahead of real time. */
  offset_s: number;
  /** `false` if work that became due is still in progress; absent when everything is done. */
  settled: boolean;
}

export interface TestEvent {
  /** Type of this object. */
  object: "event";
  /** Id of the event. */
  id: string;
  /** Type of the event. */
  type: "webhook.test";
}

export interface TlsFailureCount {
  /** Result type of RFC 8460, or `other`. */
  type: string;
  /** Number of sessions. */
  count: number;
}

export interface TlsResults {
  /** Sessions with TLS. */
  successful: number;
  /** Sessions whose TLS failed. */
  failed: number;
  /** Failures by type, most first. */
  failures: Array<TlsFailureCount>;
}

export interface UnsubscribeList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<UnsubscribeRecord>;
}

export interface UnsubscribeRecord {
  /** Type of this object. */
  object: "unsubscribe";
  /** Category and address; the cursor for `after`. */
  id: string;
  /** The recipient's email address. */
  address: string;
  /** One of the team's categories. */
  category: string;
  /** How the recipient unsubscribed: by the link, by mail to the unsubscribe address, or by hand. */
  reason: "link" | "mail" | "manual";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
}

export interface UnsubscribeRequest {
  /** The recipient's email address. */
  address: string;
  /** One of the team's categories. */
  category: string;
}

export interface UsageChannels {
  /** Emails. */
  email: UsageCounts;
  /** SMS messages. */
  sms: UsageCounts;
  /** WhatsApp messages. */
  whatsapp: UsageCounts;
}

export interface UsageCharge {
  /** What was charged. */
  kind: "email" | "sms" | "whatsapp" | "verification";
  /** Number of charges. */
  count: number;
  /** Sum of the charges. */
  amount: string;
}

export interface UsageCounts {
  /** Recipients with a first outcome. */
  sent: number;
  /** Recipients that it was delivered to. */
  delivered: number;
  /** Recipients that bounced. */
  bounced: number;
  /** Recipients that complained. */
  complained: number;
  /** Recipients that failed. */
  failed: number;
}

export interface UsageQuota {
  /** Recipients of emails a month included in the plan. */
  limit: number;
  /** Recipients counted; null for a month that is over. */
  used: number | null;
}

export interface UsageView {
  /** Type of this object. */
  object: "usage";
  /** Id of the team. */
  team_id: string;
  /** UTC month. */
  month: string;
  /** ISO code of the billing currency. */
  currency: string;
  /** The monthly quota of emails. */
  email_quota: UsageQuota;
  /** Recipients by the outcomes that were reached in the month. */
  channels: UsageChannels;
  /** Charges by kind; kinds without charges are missing. */
  charges: Array<UsageCharge>;
  /** Sum of all charges. */
  total: string;
}

export interface Variables {
  [name: string]: string | number | boolean | null | Array<Variables> | Variables;
}

export interface VerificationExhaustedData {
  /** Public id. */
  id: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Phone number or email address that received the code. */
  to: string;
  /** Status of the verification. */
  status: "pending" | "verified" | "expired" | "exhausted" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When the code stops working. */
  expires_at: string;
  /** Why the status is `failed`, else null. */
  error_message: string | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** The language requested for the text, if any. */
  locale?: string | null;
}

export interface VerificationExhaustedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "verification.exhausted";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: VerificationExhaustedData;
}

export interface VerificationFailedData {
  /** Public id. */
  id: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Phone number or email address that received the code. */
  to: string;
  /** Status of the verification. */
  status: "pending" | "verified" | "expired" | "exhausted" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When the code stops working. */
  expires_at: string;
  /** Why the status is `failed`, else null. */
  error_message: string | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** The language requested for the text, if any. */
  locale?: string | null;
}

export interface VerificationFailedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "verification.failed";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: VerificationFailedData;
}

export interface VerificationList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<VerificationView>;
}

export interface VerificationRecord {
  /** Public id. */
  id: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** Status of the verification. */
  status: "pending" | "verified" | "expired" | "exhausted" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When the code stops working: ten minutes after the start. */
  expires_at: string;
  /** The carrier's words when the status is `failed`, else null. */
  error_message: string | null;
}

export interface VerificationVerifiedData {
  /** Public id. */
  id: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Phone number or email address that received the code. */
  to: string;
  /** Status of the verification. */
  status: "pending" | "verified" | "expired" | "exhausted" | "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** When the code stops working. */
  expires_at: string;
  /** Why the status is `failed`, else null. */
  error_message: string | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** The language requested for the text, if any. */
  locale?: string | null;
}

export interface VerificationVerifiedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "verification.verified";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: VerificationVerifiedData;
}

export interface VerificationView {
  /** Public id. */
  id: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** Status of the verification. */
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
  /** The language requested for the text, if any. */
  locale?: string | null;
}

export interface VerifyFields {
  /** Countries that may receive codes: ISO codes, or `*`. */
  countries?: Array<string> | null;
  /** Codes to one phone in 10 minutes. */
  per_phone_10m?: number | null;
  /** Codes to one phone in a day. */
  per_phone_day?: number | null;
  /** Codes to one number range in 10 minutes. */
  per_prefix_10m?: number | null;
  /** Seconds between two codes to one phone. */
  min_interval_s?: number | null;
  /** Wrong codes of one phone in a day. */
  wrong_per_phone_day?: number | null;
  /** Stop codes to ranges where few codes are checked. */
  conversion_guard?: boolean | null;
  /** Language of the text. */
  language?: string | null;
  /** Whether magic numbers also verify in a live team. */
  magic?: boolean | null;
  /** Whether keys of a sandbox team can read codes in its test inbox. */
  inbox?: boolean | null;
  /** Domain on which browsers may fill in the code; empty for none. */
  webotp?: string | null;
  /** Channels that codes can be sent on. */
  channels?: Array<"email" | "sms" | "whatsapp"> | null;
}

export interface VerifyPreview {
  /** Always `true`: nothing was sent or written. */
  dry_run: true;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** Channel. */
  channel: "email" | "sms" | "whatsapp";
  /** ISO code of the phone number's country; null if no country uses the prefix. */
  country: string | null;
  /** The language of its text, as a tag such as `de-AT`. */
  locale: string;
  /** Price if sent now, in the team's currency. */
  price: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
}

export interface VerifyRequest {
  /** Phone in E.164 form, for example `+14155550123`; by `email`, an email address. */
  to: string;
  /** `sms`, the default; `whatsapp` or `email` where the team's `verify.channels` names it. A list: if a channel refuses the code or reports no receipt within 20 seconds, the same code is sent by the next channel. */
  channel?: "email" | "sms" | "whatsapp" | Array<"email" | "sms" | "whatsapp"> | null;
  /** Up to 10 name-value pairs for finding and counting messages. */
  tags?: Record<string, string> | null;
  /** Any JSON object of up to 4 KiB. Returned in reads and events, but not searchable. */
  metadata?: Record<string, unknown> | null;
  /** Language tag (BCP 47), such as `de-AT`. Falls back to `de`, then to the template's default. */
  locale?: string | null;
}

export interface VersionList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<VersionView>;
}

export interface VersionView {
  /** Name of the template. */
  name: string;
  /** Email subject. */
  subject: string | null;
  /** Email HTML body. */
  html: string | null;
  /** Email plain-text body. */
  text: string | null;
  /** Text of an SMS or WhatsApp message. */
  body: string | null;
  /** Category of a WhatsApp template. */
  category: string | null;
  /** Language of a WhatsApp template. */
  language: string | null;
  /** Name of a WhatsApp template at Meta; null if it equals `name`. */
  upstream_name: string | null;
  /** Variable names, or objects `{"name", "list", "max", "max_length"}`, in order. */
  variables: Array<string | Record<string, unknown>>;
  /** Variables that can be omitted. */
  optional: Array<string>;
  /** Language of the main parts. */
  locale: string;
  /** Parts in other languages, by BCP 47 tag. */
  locales: Record<string, Record<string, string>>;
  /** Time zone used to format dates and times. */
  timezone: string;
  /** Id of the layout around html and text. */
  layout: string | null;
  /** Version number, starting at 1. */
  version: number;
  /** When this version was created; null for versions older than this field. */
  created_at: string | null;
}

export interface WebhookChange {
  /** Where events are sent: http or https, without a fragment. `user:password@` before the host is sent as Basic authentication and never shown again. */
  url?: string | null;
  /** Event types, groups such as `email.*`, or `*`. */
  events?: Array<"*" | "email.*" | "sms.*" | "whatsapp.*" | "verification.*" | "suppression.*" | "opt_out.*" | "recipient.*" | "domain.*" | "template.*" | "credit.*" | "batch.*" | "message.*" | "webhook.*" | "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "recipient.unsubscribed" | "recipient.resubscribed" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "message.held" | "webhook.test"> | null;
  /** `true` also clears `disabled_reason`. */
  enabled?: boolean | null;
  /** A free-text note. */
  description?: string | null;
  /** Format of body, headers and signature: Heliograph's own or another service's. */
  format?: "heliograph" | "postal" | "postmark" | "resend" | "twilio" | null;
}

export interface WebhookList {
  /** Type of this object. */
  object: "list";
  /** Whether there is a next page, to request with `after` set to the last id of this page. */
  has_more: boolean;
  /** The records of this page. */
  data: Array<WebhookRecord>;
}

export interface WebhookRecord {
  /** Public id. */
  id: string;
  /** Where events are sent. */
  url: string;
  /** Event types, groups or `*` that the webhook subscribes to. */
  events: Array<"*" | "email.*" | "sms.*" | "whatsapp.*" | "verification.*" | "suppression.*" | "opt_out.*" | "recipient.*" | "domain.*" | "template.*" | "credit.*" | "batch.*" | "message.*" | "webhook.*" | "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "recipient.unsubscribed" | "recipient.resubscribed" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "message.held" | "webhook.test">;
  /** Whether events are delivered. */
  enabled: boolean;
  /** A free-text note. */
  description: string | null;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** Why Heliograph disabled the webhook automatically; null otherwise. */
  disabled_reason: string | null;
  /** Until when the previous secret also signs; null outside a rotation. */
  secret_rotates_until: string | null;
  /** Format of body, headers and signature. */
  format: "heliograph" | "postal" | "postmark" | "resend" | "twilio";
  /** Public key that verifies signatures of the `postal` format; null for other formats. */
  public_key: string | null;
}

export interface WebhookRequest {
  /** Where events are sent: http or https, without a fragment. `user:password@` before the host is sent as Basic authentication and never shown again. */
  url: string;
  /** Event types, groups such as `email.*`, or `*`. */
  events: Array<"*" | "email.*" | "sms.*" | "whatsapp.*" | "verification.*" | "suppression.*" | "opt_out.*" | "recipient.*" | "domain.*" | "template.*" | "credit.*" | "batch.*" | "message.*" | "webhook.*" | "email.sending" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "sms.sending" | "sms.sent" | "sms.delivered" | "sms.failed" | "whatsapp.sending" | "whatsapp.sent" | "whatsapp.delivered" | "whatsapp.read" | "whatsapp.failed" | "email.delayed" | "email.received" | "verification.verified" | "verification.failed" | "verification.exhausted" | "suppression.created" | "suppression.deleted" | "sms.received" | "whatsapp.received" | "opt_out.created" | "opt_out.deleted" | "recipient.unsubscribed" | "recipient.resubscribed" | "domain.verified" | "domain.failed" | "template.status_changed" | "credit.low" | "batch.done" | "message.held" | "webhook.test">;
  /** Your own signing secret: `whsec_` and the base64 of 24 to 64 bytes. Default: a generated secret. */
  secret?: string | null;
  /** A free-text note. */
  description?: string | null;
  /** Format of body, headers and signature: Heliograph's own or another service's. */
  format?: "heliograph" | "postal" | "postmark" | "resend" | "twilio" | null;
}

export interface WebhookTestData {
  /** Public id. */
  id: string;
  /** The webhook's URL. */
  url: string;
  /** What the webhook subscribes to. */
  events: Array<string>;
  /** The webhook's description. */
  description: string | null;
}

export interface WebhookTestEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "webhook.test";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: WebhookTestData;
}

export interface WhatsappDeliveredData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The recipient's new state. */
  status: "delivered";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
}

export interface WhatsappDeliveredEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "whatsapp.delivered";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: WhatsappDeliveredData;
}

export interface WhatsappFailedData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The recipient's new state. */
  status: "failed";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
  /** The carrier's reply, or Heliograph's own reason; absent if unknown. */
  error?: Record<string, unknown>;
  /** The same as `error`, if it has a `reason` of Heliograph's own. */
  detail?: Record<string, unknown>;
  /** What happened, and what to do about it. */
  explanation?: ExplanationRecord;
}

export interface WhatsappFailedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "whatsapp.failed";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: WhatsappFailedData;
}

export interface WhatsappPreview {
  /** Always `true`: nothing was sent or written. */
  dry_run: true;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** ISO code of the phone number's country; null if no country uses the prefix. */
  country: string | null;
  /** The template's name upstream. */
  template: string;
  /** The template's language. */
  language: string;
  /** The values in the order of the template's manifest. */
  parameters: Array<string>;
  /** Rendered text. */
  body: string;
  /** Version of the rendered template; null without a template. */
  template_version: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale: string | null;
  /** Price if sent now, in the team's currency. */
  price: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
}

export interface WhatsappReadData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The recipient's new state. */
  status: "read";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
}

export interface WhatsappReadEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "whatsapp.read";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: WhatsappReadData;
}

export interface WhatsappReceivedData {
  /** Type of this object. */
  object: "received";
  /** Public id. */
  id: string;
  /** The sender's phone number. */
  from: string;
  /** The team's number or sender ID. */
  to: string;
  /** The text. */
  text: string;
  /** Id of the carrier that reported the text. */
  carrier: string;
  /** `true` if parts of a long text are missing. */
  incomplete?: boolean;
}

export interface WhatsappReceivedEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "whatsapp.received";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: WhatsappReceivedData;
}

export interface WhatsappSendingData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The recipient's new state. */
  status: "sending";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
}

export interface WhatsappSendingEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "whatsapp.sending";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: WhatsappSendingData;
}

export interface WhatsappSentData {
  /** Public id. */
  id: string;
  /** Recipient: for email the first To address, otherwise a phone number in E.164 format. */
  to: string;
  /** The recipient's new state. */
  status: "sent";
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The caller's tags. */
  tags?: Record<string, string>;
  /** The caller's metadata. */
  metadata?: Record<string, unknown>;
  /** When the message is scheduled to be sent; null: at once. */
  scheduled_at?: string | null;
  /** When an unsent message expires; null: never. */
  expires_at?: string | null;
  /** Order in the queue: due messages with higher priority are sent first. */
  priority?: "critical" | "normal" | "bulk";
  /** Version of the rendered template; null without a template. */
  template_version?: number;
  /** Version of the layout used; null without a layout. */
  layout_version?: number;
  /** Language of the rendered content, as a tag such as `de-AT`; null without a template. */
  locale?: string;
  /** The state of the whole message after this event. */
  message_status: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "read" | null;
  /** The state before this event. */
  previous_status: string | null;
  /** The recipient's address or phone; null for a bcc recipient. */
  recipient: string | null;
  /** Header in which the recipient was addressed. */
  recipient_kind: "to" | "cc" | "bcc" | null;
}

export interface WhatsappSentEvent {
  /** Public id. */
  id: string;
  /** Type of the event. */
  type: "whatsapp.sent";
  /** Creation time, ISO 8601 in UTC with milliseconds. */
  created_at: string;
  /** The team. */
  team_id: string;
  /** `true` for a sandbox team. */
  sandbox: boolean;
  /** Number of the event within its message, starting at 1. */
  sequence: number;
  /** What changed. */
  data: WhatsappSentData;
}

export interface Operations {
  "POST /v1/emails": { body: EmailRequest; query: { dry_run?: boolean }; answer: EmailRecord };
  "GET /v1/emails": { query: { limit?: number; after?: string; status?: "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed"; to?: string; created_after?: string; created_before?: string; tag?: string; template_id?: string }; answer: EmailList };
  "POST /v1/sms": { body: PhoneRequest; query: { dry_run?: boolean }; answer: PhoneRecord };
  "GET /v1/sms": { query: { limit?: number; after?: string; status?: "queued" | "sending" | "sent" | "delivered" | "failed"; to?: string; created_after?: string; created_before?: string; tag?: string; template_id?: string }; answer: PhoneList };
  "POST /v1/whatsapp": { body: PhoneRequest; query: { dry_run?: boolean }; answer: PhoneRecord };
  "GET /v1/whatsapp": { query: { limit?: number; after?: string; status?: "queued" | "sending" | "sent" | "delivered" | "read" | "failed"; to?: string; created_after?: string; created_before?: string; tag?: string; template_id?: string }; answer: PhoneList };
  "POST /v1/emails/batch": { body: EmailBatchRequest; answer: BatchResponse };
  "POST /v1/sms/batch": { body: PhoneBatchRequest; answer: BatchResponse };
  "POST /v1/whatsapp/batch": { body: PhoneBatchRequest; answer: BatchResponse };
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
  "PATCH /v1/emails/{id}": { body: RescheduleRequest; answer: EmailSummary };
  "GET /v1/emails/{id}": { answer: EmailView };
  "POST /v1/emails/{id}/cancel": { answer: EmailSummary };
  "PATCH /v1/sms/{id}": { body: RescheduleRequest; answer: PhoneSummary };
  "GET /v1/sms/{id}": { answer: PhoneView };
  "POST /v1/sms/{id}/cancel": { answer: PhoneSummary };
  "PATCH /v1/whatsapp/{id}": { body: RescheduleRequest; answer: PhoneSummary };
  "GET /v1/whatsapp/{id}": { answer: PhoneView };
  "POST /v1/whatsapp/{id}/cancel": { answer: PhoneSummary };
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
  "GET /v1/unsubscribes": { query: { limit?: number; after?: string }; answer: UnsubscribeList };
  "POST /v1/unsubscribes": { body: UnsubscribeRequest; answer: UnsubscribeRecord };
  "GET /v1/unsubscribes/{address}": { query: { category?: string }; answer: UnsubscribeRecord | UnsubscribeList };
  "DELETE /v1/unsubscribes/{address}": { query: { category?: string }; answer: DeletedUnsubscribe };
  "GET /v1/domains": { query: { limit?: number; after?: string }; answer: DomainList };
  "POST /v1/domains": { body: DomainRequest; answer: DomainView };
  "GET /v1/domains/{id}": { answer: DomainView };
  "POST /v1/domains/{id}/rotate": { answer: DomainView };
  "POST /v1/domains/{id}/check": { answer: DomainView };
  "GET /v1/domains/{id}/reports": { query: { from?: string; to?: string }; answer: DomainReports };
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
  "GET /v1/events/schema": { answer: EventSchema };
  "GET /v1/teams": { query: { limit?: number; after?: string }; answer: TeamList };
  "POST /v1/teams": { body: TeamRequest; answer: TeamDetails };
  "GET /v1/teams/{id}": { answer: TeamDetails };
  "PATCH /v1/teams/{id}": { body: TeamChange; answer: TeamDetails };
  "DELETE /v1/teams/{id}": { answer: TeamDetails };
  "POST /v1/teams/{id}/restore": { answer: TeamDetails };
  "GET /v1/teams/{id}/keys": { query: { limit?: number; after?: string }; answer: KeyList };
  "POST /v1/teams/{id}/keys": { body: KeyRequest; answer: NewKeyRecord };
  "DELETE /v1/teams/{id}/keys/{key_id}": { answer: KeyRecord };
  "GET /v1/teams/{id}/members": { query: { limit?: number; after?: string }; answer: MemberList };
  "POST /v1/teams/{id}/members": { body: MemberRequest; answer: NewMemberRecord };
  "DELETE /v1/teams/{id}/members/{person_id}": { answer: DeletedMember };
  "GET /v1/teams/{id}/credit": { answer: CreditView };
  "POST /v1/teams/{id}/credit": { body: CreditRequest; answer: CreditBooking };
  "GET /v1/teams/{id}/usage": { query: { month?: string }; answer: UsageView };
  "POST /v1/teams/{id}/portal": { body: PortalRequest; answer: PortalLinkRecord };
  "GET /v1/approvals": { query: { limit?: number; after?: string }; answer: ApprovalList };
  "POST /v1/approvals/{id}/approve": { body: ApprovalDecision; answer: ApprovalRecord };
  "POST /v1/approvals/{id}/reject": { body: ApprovalDecision; answer: ApprovalRecord };
  "GET /v1/audit": { query: { limit?: number; after?: number; team?: string }; answer: AuditList };
  "GET /v1/errors": { query: { limit?: number; after?: string }; answer: ErrorList };
  "GET /v1/causes": { query: { limit?: number; after?: string }; answer: CauseList };
  "GET /healthz": { answer: Health };
  "GET /readyz": { answer: Health };
}

export type WebhookEvent = EmailSendingEvent | EmailSentEvent | EmailDeliveredEvent | EmailBouncedEvent | EmailComplainedEvent | EmailFailedEvent | SmsSendingEvent | SmsSentEvent | SmsDeliveredEvent | SmsFailedEvent | WhatsappSendingEvent | WhatsappSentEvent | WhatsappDeliveredEvent | WhatsappReadEvent | WhatsappFailedEvent | EmailDelayedEvent | EmailReceivedEvent | VerificationVerifiedEvent | VerificationFailedEvent | VerificationExhaustedEvent | SuppressionCreatedEvent | SuppressionDeletedEvent | SmsReceivedEvent | WhatsappReceivedEvent | OptOutCreatedEvent | OptOutDeletedEvent | RecipientUnsubscribedEvent | RecipientResubscribedEvent | DomainVerifiedEvent | DomainFailedEvent | TemplateStatusChangedEvent | CreditLowEvent | BatchDoneEvent | MessageHeldEvent | WebhookTestEvent;
