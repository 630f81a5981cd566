"""Every decision of the spec, pure: no await, no SQL, no clock, no randomness."""
