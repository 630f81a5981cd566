"""Server-rendered dashboard; every page works without JavaScript."""
