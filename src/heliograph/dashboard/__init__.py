"""The dashboard: pages made on the server; every one of them works without a script."""
