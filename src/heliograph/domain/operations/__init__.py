"""Rules for operating the service: capacity, notices, erasure, test clocks."""
