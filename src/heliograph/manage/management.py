"""The use cases that need their own tools, as the edges get them."""

import msgspec

from heliograph.domain.setup.secrets import Seal
from heliograph.manage.domains import Domains
from heliograph.manage.notices import ChatHooks
from heliograph.webhooks.service import Webhooks


class Management(msgspec.Struct, frozen=True, kw_only=True):
    domains: Domains
    webhooks: Webhooks
    chats: ChatHooks
    seal: Seal  # of a hook's key
