"""All services in whose shape we answer."""

from heliograph.compat.postal.surface import POSTAL
from heliograph.compat.postmark.surface import POSTMARK
from heliograph.compat.resend.surface import RESEND
from heliograph.compat.supabase import SUPABASE
from heliograph.compat.twilio.surface import TWILIO
from heliograph.web.surface import Surface

SURFACES: tuple[Surface, ...] = (POSTAL, POSTMARK, RESEND, SUPABASE, TWILIO)
