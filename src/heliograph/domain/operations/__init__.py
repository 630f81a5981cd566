"""Rules of running the service: capacity, notices, erasure, test clocks."""
