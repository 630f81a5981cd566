"""The use cases that need tools of their own, as the edges are handed them."""

import msgspec

from heliograph.manage.domains import Domains
from heliograph.manage.webhooks import Webhooks


class Management(msgspec.Struct, frozen=True, kw_only=True):
    domains: Domains
    webhooks: Webhooks
