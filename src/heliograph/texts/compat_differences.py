"""How our compatibility APIs differ from the APIs that they implement, by route (all details: docs/compat.md)."""

DIFFERENCES = {
    "POST /compat/resend/domains": "`region` is ignored, and the DNS records are ours.",
    "GET /compat/resend/domains/{id}": "`verified` also means that an operator approved the domain.",
    "PATCH /compat/resend/domains/{id}": "Only tracking off and `opportunistic` TLS are accepted.",
    "DELETE /compat/resend/domains/{id}": "A domain that may send is not deleted. Ask an operator first.",
    "POST /compat/resend/webhooks": "Opens and clicks are never sent: they are not tracked.",
    "GET /compat/resend/webhooks/{id}": "`signing_secret` is null: it is only shown when created.",
    "POST /compat/resend/templates": "Triple braces are stored as `{{customer.name}}`.",
    "POST /compat/resend/templates/{id}/publish": "May need an operator's approval.",
    "GET /compat/resend/logs": "Bodies are not stored.",
    "GET /compat/resend/logs/{id}": "Bodies are not stored.",
    "GET /compat/postmark/messages/outbound": "`recipient` must be a complete address.",
    "GET /compat/postmark/messages/outbound/{id}/details": "`Body` is empty: raw messages are not stored.",
    "GET /compat/postmark/messages/outbound/{id}/dump": "`Body` is empty: raw messages are not stored.",
    "GET /compat/postmark/messages/outbound/opens": "Always empty: opens are not tracked.",
    "GET /compat/postmark/messages/outbound/clicks": "Always empty: clicks are not tracked.",
    "GET /compat/postmark/bounces/{id}/dump": "`Body` is empty: raw messages are not stored.",
    "GET /compat/postmark/message-streams": "There is one stream, `outbound`.",
    "GET /compat/postmark/server": "Tokens are not returned: only their hashes are stored.",
    "GET /compat/postmark/stats/outbound": "Days are in UTC, and `tag` is refused.",
    "GET /compat/postmark/stats/outbound/opens": "Always 0: opens are not tracked.",
    "GET /compat/postmark/stats/outbound/clicks": "Always 0: clicks are not tracked.",
    "POST /compat/postmark/templates": "Layouts are not supported, and variable names become lower-case.",
    "POST /compat/postmark/webhooks": "`Open` and `Click` events are never sent, and `HttpHeaders` are refused.",
    "POST /compat/twilio/v2/Services": "The `VA…` id is always the same for a name; other fields are ignored.",
    "POST /compat/twilio/v2/Services/{service}/VerificationCheck": (
        "The status after a wrong code stays `pending`, even after the fifth."
    ),
    "POST /compat/twilio/2010-04-01/Accounts/{account}/Messages.json": (
        "The text comes from an approved template: use `ContentSid`, or a key with a template for free text."
    ),
    "GET /compat/twilio/2010-04-01/Accounts/{account}/Messages.json": "`PageSize` is at most 100.",
}
