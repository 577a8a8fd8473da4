"""Training jobs on this machine: child processes that follow grants, are told before they must go, and are resumed."""
