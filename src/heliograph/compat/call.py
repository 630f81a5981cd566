"""The type of a request to a compatibility API, with the services that its use cases need."""

from heliograph.accept.context import Context
from heliograph.manage.management import Management
from heliograph.web import route

Call = route.Call[Context, Management]
