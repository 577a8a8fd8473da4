"""Settings of the process, in one place."""
