"""From a request to a durable row: check, decide, write, answer. One file an endpoint."""
