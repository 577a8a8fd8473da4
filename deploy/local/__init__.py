"""The local cluster: replicas are child processes."""
