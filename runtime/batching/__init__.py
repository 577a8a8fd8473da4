"""A front before an engine that gathers single requests into batches: off unless `spec.batching` asks."""
