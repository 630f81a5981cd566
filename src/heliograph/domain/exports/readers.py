"""Registry of export parsers by service."""

from heliograph.domain.exports import postmark, resend, sendgrid, twilio
from heliograph.domain.exports.records import ReadRow

READERS: dict[str, ReadRow] = {
    "postmark": postmark.read_row,
    "resend": resend.read_row,
    "sendgrid": sendgrid.read_row,
    "twilio": twilio.read_row,
}
