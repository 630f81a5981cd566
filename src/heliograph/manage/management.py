"""The use cases that need their own tools, as the edges get them."""

import msgspec

from heliograph.manage.domains import Domains
from heliograph.manage.notices import ChatHooks
from heliograph.manage.webhooks import Webhooks
from heliograph.rules.setup.secrets import Seal


class Management(msgspec.Struct, frozen=True, kw_only=True):
    domains: Domains
    webhooks: Webhooks
    chats: ChatHooks
    seal: Seal  # of a hook's key
