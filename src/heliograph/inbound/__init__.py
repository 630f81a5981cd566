"""Bounces, delivery reports, inbound mail and inbound texts."""
