"""What touches the world on the autoscaler's behalf. Imported by deploy and tests only."""
