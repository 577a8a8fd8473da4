"""Wires the roles into one process."""
