"""The views, one file a part of the dashboard."""
