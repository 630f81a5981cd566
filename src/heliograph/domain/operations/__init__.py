"""Rules for operating the service: notices, erasure, test clocks."""
