"""Slots and slot authorities, the desk, the gateway, asynchronous inference, engines."""
