"""Composition: the command line, the admin API, settings, the declaration, where replicas run."""
