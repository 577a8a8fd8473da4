"""The parts of the simulated engine: an HTTP server that answers as a language model does, without a model."""
