"""All services whose exports can be read."""

from heliograph.rules.exports import postmark, resend
from heliograph.rules.exports.records import ReadRow

READERS: dict[str, ReadRow] = {"postmark": postmark.read_row, "resend": resend.read_row}
