"""Cards lent to training jobs, and taken back with a checkpoint when models need them. Pure."""
