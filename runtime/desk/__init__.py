"""The desk: the slot authority at work, the gateways it shares models with, and what it tells the world."""
