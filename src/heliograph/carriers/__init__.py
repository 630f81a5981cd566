"""Carriers: whatever takes a message off our hands. A channel is a folder, a carrier is a file."""
