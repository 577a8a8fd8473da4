"""The frameworks of which one environment has all: each is shown to lose nothing."""

from __future__ import annotations

from tests.trainers.proofs import Case, Proofs


class TestPyTorch(Proofs):
    case = Case("torch_plain")


class TestDistributedDataParallel(Proofs):
    case = Case("torch_plain", world=2)


class TestFullyShardedWithDcp(Proofs):
    case = Case("torch_sharded", world=2)


class TestFullyShardedWithDcpStaged(Proofs):
    case = Case("torch_sharded", world=2, variant="staged")


class TestJaxWithOrbax(Proofs):
    case = Case("jax_orbax")


class TestJaxWithOrbaxTwoProcesses(Proofs):
    case = Case("jax_orbax", world=2)


class TestTransformers(Proofs):
    case = Case("hf_trainer")


class TestTransformersTwoRanks(Proofs):
    case = Case("hf_trainer", world=2)


class TestKerasOnJax(Proofs):
    case = Case("keras_fit", environment=(("KERAS_BACKEND", "jax"),))


class TestKerasOnTorch(Proofs):
    case = Case("keras_fit", environment=(("KERAS_BACKEND", "torch"),))


class TestLightning(Proofs):
    case = Case("lightning_fit")


class TestLightningTwoRanks(Proofs):
    case = Case("lightning_fit", world=2)
