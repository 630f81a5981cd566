"""Every number of the spec and the contract, with its unit and its source."""

KIB = 1024
MIB = 1024 * KIB
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# Email (spec 8)
RECIPIENTS_MAX = 50
REPLY_TO_MAX = 10
SUBJECT_MAX = 200  # code points, direct mode
ATTACHMENTS_MAX = 20
ATTACHMENT_MAX = 10 * MIB  # one, decoded, inclusive
ATTACHMENTS_TOTAL_MAX = 25 * MIB  # all of a send, decoded, inclusive
LOCAL_PART_MAX = 64  # octets (contract 4)
NAME_ADDR_MAX = 4 * KIB  # characters of `from`: names have 200
FILENAME_MAX = 4 * KIB  # characters that are looked at, from the end
DOMAIN_MAX = 253  # octets of the A-label form (contract 4)

BODY_OCTETS_MAX = 5 * MIB  # of html and text together, as given or as rendered (contract 4)
SUBJECT_OCTETS_MAX = 64 * KIB  # of a subject that a template renders
VARIABLES_OCTETS_MAX = 256 * KIB  # of variables as compact JSON (contract 4)

# Requests (contract 1)
EMAIL_BODY_MAX = 40 * MIB
BATCH_BODY_MAX = 40 * MIB  # of any channel
TEMPLATE_BODY_MAX = 2 * MIB  # of templates, layouts and what renders them
BODY_MAX = 64 * KIB
HTML_MAX = 512 * KIB  # characters of a template's part
IN_THREAD = 256 * KIB  # bodies above this are read off the event loop
PARSED = 32  # a character that is looked for words, tags or placeholders takes as long as so many that are copied
JSON_DEPTH_MAX = 32
JSON_VALUES_MAX = 200_000

# Callbacks of carriers (contract 17)
CALLBACK_USUAL = 16 * KIB  # larger bodies are verified and read in a thread
CALLBACK_VALUES_MAX = 100_000  # JSON values of a callback: msgspec holds the interpreter lock while it decodes them
CALLBACK_EVENTS_MAX = 10_000  # events in a callback
CALLBACK_ID_KEPT_MS = 30 * DAY_MS  # how long a callback's id is remembered; longer than any provider retries

BATCH_MAX = 500  # messages (contract 16)
SHARED_MIN = 16 * KIB  # of a sandbox mail: larger ones keep once what they have in common
BATCH_CONTENT_MAX = 64 * MIB  # of all its messages together, as rendered: one transaction, held in memory

# SMS (spec 8)
SMS_BODY_MAX = 1600  # characters

# WhatsApp (spec 8): the conversation window of 24 hours, less a minute for the request that sends an answer
WHATSAPP_WINDOW_MS = DAY_MS - MINUTE_MS

# Verify (spec 3.2, 8)
CODE_DIGITS = 6
CODE_MIN = 4
CODE_MAX = 10
WRONG_CODES_MAX = 5
VERIFICATION_MS = 10 * MINUTE_MS

# Idempotency (spec 4.1.3, contract 9)
IDEMPOTENCY_KEY_MAX = 255
IDEMPOTENCY_WINDOW_MS = DAY_MS
IDEMPOTENCY_LEASE_MS = 60 * SECOND_MS

# Delivery (reliability, choices)
LEASE_MS = 120 * SECOND_MS
HEARTBEAT_MS = 40 * SECOND_MS
CONTACT_MS = 10 * SECOND_MS  # a longer pause between two commits of a process counts as no more contact than this
CLAIMS_MAX = 2  # claims without a recorded outcome, after which a message is tried alone
DEATHS_MAX = 3  # of workers while it was alone in their hands: then it counts as poison
ALONE_AGAIN_MS = 10 * SECOND_MS  # after the first of them; twice as long after the second: a crash loop is over then
BLOB_MIN = 256 * KIB  # attachments above this are files
