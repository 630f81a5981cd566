"""All services in whose shape we answer."""

from heliograph.api.surface import Surface
from heliograph.compat.resend.surface import RESEND

SURFACES: tuple[Surface, ...] = (RESEND,)
