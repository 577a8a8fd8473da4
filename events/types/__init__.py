"""Every event as a frozen type, one module for each topic."""
