"""All services whose exports can be read."""

from heliograph.rules.exports import resend
from heliograph.rules.exports.records import ReadRow

READERS: dict[str, ReadRow] = {"resend": resend.read_row}
