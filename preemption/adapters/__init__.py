"""What touches the world for the preemption package: cluster files."""
