"""Parsers of exported data, by the service that exported it."""

from heliograph.domain.exports import postmark, resend, sendgrid, twilio
from heliograph.domain.exports.records import ConvertRow

CONVERTER_BY_SERVICE: dict[str, ConvertRow] = {
    "postmark": postmark.convert_row,
    "resend": resend.convert_row,
    "sendgrid": sendgrid.convert_row,
    "twilio": twilio.convert_row,
}
