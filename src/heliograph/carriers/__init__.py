"""Carriers: the systems that messages are sent through. Each channel has a folder, each carrier a module."""
