"""relume on a real API server and scheduler, with many models and nodes that exist on paper."""
