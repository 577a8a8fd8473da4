"""How likely a model is needed soon, learned from when it was needed: pure, one small state a model."""
