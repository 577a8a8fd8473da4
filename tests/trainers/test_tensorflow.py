"""Keras on TensorFlow's own backend, in an environment of its own: `make tensorflow`."""

from __future__ import annotations

from tests.trainers.proofs import Case, Proofs


class TestKerasOnTensorFlow(Proofs):
    case = Case("keras_fit", environment=(("KERAS_BACKEND", "tensorflow"),))
