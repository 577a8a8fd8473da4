"""Asynchronous inference, decided: what becomes of each request that a producer put on a topic."""
