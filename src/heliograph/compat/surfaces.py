"""All services in whose shape we answer."""

from heliograph.api.surface import Surface
from heliograph.compat.postal import POSTAL
from heliograph.compat.postmark import POSTMARK
from heliograph.compat.resend.surface import RESEND
from heliograph.compat.supabase import SUPABASE
from heliograph.compat.twilio.surface import TWILIO

SURFACES: tuple[Surface, ...] = (POSTAL, POSTMARK, RESEND, SUPABASE, TWILIO)
