"""Wires the roles into processes: all in one, or each in its own."""
