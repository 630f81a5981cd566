"""The compatibility API for Postmark, with one module per resource."""
