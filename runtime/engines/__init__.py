"""The server programs that run as replicas, each in a process of its own."""
