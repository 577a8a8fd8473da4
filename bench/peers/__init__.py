"""Other proxies, set up as well as they can be, to measure the gateway against."""
