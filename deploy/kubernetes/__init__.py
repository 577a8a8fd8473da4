"""The cluster adapter of Kubernetes: Model objects become declarations, grants become pods, pods become replicas."""
