"""The compatibility API for Resend, with one module per resource."""
