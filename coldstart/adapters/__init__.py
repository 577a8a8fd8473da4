"""Sources of weights: folders and HTTP servers."""
