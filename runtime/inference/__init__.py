"""Asynchronous inference: requests that producers put on a topic are answered when there is room."""
