"""The adapters of all compatibility APIs."""

from heliograph.compat.postal.routes import POSTAL
from heliograph.compat.postmark.routes import POSTMARK
from heliograph.compat.resend.routes import RESEND
from heliograph.compat.supabase import SUPABASE
from heliograph.compat.twilio.routes import TWILIO
from heliograph.web.adapter import ApiAdapter

ADAPTERS: tuple[ApiAdapter, ...] = (POSTAL, POSTMARK, RESEND, SUPABASE, TWILIO)
