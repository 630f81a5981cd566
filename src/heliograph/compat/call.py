"""A request on one of the routes here, with what its use cases work with."""

from heliograph.accept.context import Context
from heliograph.manage.management import Management
from heliograph.web import route

Call = route.Call[Context, Management]
