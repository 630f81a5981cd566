"""The compatibility API for Postal, with one module per resource."""
