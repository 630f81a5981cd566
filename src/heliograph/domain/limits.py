"""Every limit of the spec and the contract, with its unit and source."""

KIB = 1024
MIB = 1024 * KIB
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# Email (spec 8)
RECIPIENTS_MAX = 50
REPLY_TO_MAX = 10
SUBJECT_MAX = 200  # code points, for an email without a template
ATTACHMENTS_MAX = 20
ATTACHMENT_MAX = 10 * MIB  # one attachment after base64 decoding
ATTACHMENTS_TOTAL_MAX = 25 * MIB  # all attachments of a send after base64 decoding
LOCAL_PART_MAX = 64  # octets (contract 4)
NAME_ADDR_MAX = 4 * KIB  # characters of `from`; display names have at most 200
FILENAME_MAX = 4 * KIB  # only the last 4,096 characters are examined
DOMAIN_MAX = 253  # octets of the A-label form (contract 4)

BODY_OCTETS_MAX = 5 * MIB  # html and text together, as sent or as rendered (contract 4)
SUBJECT_OCTETS_MAX = 64 * KIB  # subject rendered from a template
VARIABLES_OCTETS_MAX = 256 * KIB  # variables as compact JSON (contract 4)

# Requests (contract 1)
EMAIL_BODY_MAX = 40 * MIB
BATCH_BODY_MAX = 40 * MIB  # request body of a batch on any channel
TEMPLATE_BODY_MAX = 2 * MIB  # body of requests that create, change or render templates and layouts
BODY_MAX = 64 * KIB
HTML_MAX = 512 * KIB  # characters of one part of a template
PARSE_IN_THREAD_MIN = 256 * KIB  # bodies above this size are parsed outside the event loop
SCAN_COST_FACTOR = 32  # scanning one character for words, tags or placeholders takes as long as copying 32 characters
JSON_DEPTH_MAX = 32
JSON_VALUES_MAX = 200_000

# Callbacks of carriers (contract 17)
CALLBACK_INLINE_MAX = 16 * KIB  # larger bodies are verified and parsed in a thread
CALLBACK_VALUES_MAX = 100_000  # JSON values per callback: msgspec holds the GIL while it decodes
CALLBACK_EVENTS_MAX = 10_000  # events per callback
CALLBACK_ID_RETENTION_MS = 30 * DAY_MS  # how long callback ids are stored; longer than the retry period of any provider

BATCH_MAX = 500  # messages per batch (contract 16)
SHARED_CONTENT_MIN = 16 * KIB  # equal bodies of sandbox mails above this size are stored only once
BATCH_CONTENT_MAX = 64 * MIB  # rendered content of all messages, which is held in memory and stored in one transaction

# SMS (spec 8)
SMS_BODY_MAX = 1600  # characters

# WhatsApp (spec 8): the 24-hour conversation window, less a minute for the request that sends a reply
WHATSAPP_WINDOW_MS = DAY_MS - MINUTE_MS

# Verify (spec 3.2, 8)
CODE_DIGITS = 6  # digits of a verification code that we create
VERIFICATION_CODE_MIN = 4  # characters of the codes that users may enter
VERIFICATION_CODE_MAX = 10
WRONG_CODES_MAX = 5
VERIFICATION_MS = 10 * MINUTE_MS

# Idempotency (spec 4.1.3, contract 9)
IDEMPOTENCY_KEY_MAX = 255
IDEMPOTENCY_WINDOW_MS = DAY_MS
IDEMPOTENCY_LEASE_MS = 60 * SECOND_MS

# Delivery
LEASE_MS = 120 * SECOND_MS
HEARTBEAT_MS = 40 * SECOND_MS
# The time between two commits of a process counts as contact with the database, but at most this long.
CONTACT_PAUSE_MAX_MS = 10 * SECOND_MS
CLAIMS_MAX = 2  # claims without a recorded outcome, after which a message is retried in isolation
CRASHES_MAX = 3  # worker crashes during isolated attempts, after which the message counts as poison
ISOLATED_RETRY_MS = 10 * SECOND_MS  # wait after the first crash, doubled after the second: longer than a crash loop
BLOB_MIN = 256 * KIB  # attachments above this size are stored as files
