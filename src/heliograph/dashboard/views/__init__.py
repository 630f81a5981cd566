"""Views of the dashboard, one module per area."""
