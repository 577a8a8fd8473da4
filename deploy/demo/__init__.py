"""The demo: the main job on a small real model, and its report."""
