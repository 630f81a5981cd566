"""Bundle of the use cases that need dependencies such as a clock or a cipher, for the API and the dashboard."""

import msgspec

from heliograph.domain.setup.secrets import Encrypt
from heliograph.manage.domains import Domains
from heliograph.manage.notices import ChatHooks
from heliograph.webhooks.service import Webhooks


class Management(msgspec.Struct, frozen=True, kw_only=True):
    domains: Domains
    webhooks: Webhooks
    chats: ChatHooks
    encrypt: Encrypt  # encrypts the secret of a hook key
