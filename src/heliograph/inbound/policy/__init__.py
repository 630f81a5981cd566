"""Pure parsers and rules of inbound mail: DSN, ARF, bounce classification, DKIM verification."""
