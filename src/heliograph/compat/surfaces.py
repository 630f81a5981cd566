"""All services in whose shape we answer."""

from heliograph.api.surface import Surface

SURFACES: tuple[Surface, ...] = ()
