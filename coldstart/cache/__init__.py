"""The weight cache of a node: content-addressed blobs, fetched in verified chunks, published as read-only snapshots."""
