"""Slots and the slot authority, the gateway, engines."""
