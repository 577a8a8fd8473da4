"""Training jobs on Kubernetes: gangs of pods that follow grants, and Jobs of others that are suspended to yield."""
