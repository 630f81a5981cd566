"""The API adapters of all supported services."""

from heliograph.compat.postal.routes import POSTAL
from heliograph.compat.postmark.routes import POSTMARK
from heliograph.compat.resend.routes import RESEND
from heliograph.compat.supabase import SUPABASE
from heliograph.compat.twilio.routes import TWILIO
from heliograph.web.adapter import ApiAdapter

SURFACES: tuple[ApiAdapter, ...] = (POSTAL, POSTMARK, RESEND, SUPABASE, TWILIO)
