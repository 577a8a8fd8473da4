"""The compiled form of the hot path: which modules, how they are built, and how a checkout finds them."""
