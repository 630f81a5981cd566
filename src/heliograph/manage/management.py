"""The use cases that need tools of their own, as the edges are handed them."""

import msgspec

from heliograph.manage.webhooks import Webhooks


class Management(msgspec.Struct, frozen=True, kw_only=True):
    webhooks: Webhooks
