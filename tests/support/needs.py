"""What some tests need of the machine beyond Python, and where it is: the small model, the public traces.

`@pytest.mark.needs("model")` skips a test where the thing is missing, or fails it when RELUME_REQUIRE=all. The summary
at the end of a run says what was missing and how many tests that left out.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.demo.model import cached_path
from tests.support import helm, kafka_broker, kube_binary, kubelet_socket, nvml, oci_registry, prometheus, s3_store

ROOT = Path(__file__).resolve().parents[2]


def traces_folder() -> Path:
    """The folder of public traces: RELUME_TRACES, else ../shared/traces beside the checkout."""
    return Path(os.environ.get("RELUME_TRACES") or ROOT.parent / "shared" / "traces")


@dataclass(frozen=True)
class Need:
    """One thing: is it there, what is it for, how to get it."""

    there: Callable[[], bool]
    purpose: str
    remedy: str


NEEDS: dict[str, Need] = {
    "model": Need(
        there=lambda: cached_path().is_file() and importlib.util.find_spec("xllamacpp") is not None,
        purpose="tests on a real language model (llama.cpp)",
        remedy="run: python -m deploy.demo.model (needs the package registry), and install relume[llamacpp]",
    ),
    "traces": Need(
        there=(traces_folder() / "AzureLLMInferenceTrace_code.csv").is_file,
        purpose="replays of public traces",
        remedy="set RELUME_TRACES to the folder that holds AzureLLMInferenceTrace_code.csv",
    ),
    "kafka": Need(
        there=kafka_broker.there,
        purpose="tests on a real Apache Kafka",
        remedy="install Java 17 or newer and Maven (java, mvn), and relume[kafka]",
    ),
    "kubernetes": Need(
        there=lambda: kube_binary.there() and importlib.util.find_spec("kubernetes") is not None,
        purpose="tests on a real Kubernetes control plane",
        remedy="install Go 1.26 and relume[kubernetes], and run: make kubernetes (once; it takes 5 to 15 minutes)",
    ),
    "podresources": Need(
        there=lambda: kubelet_socket.there() and importlib.util.find_spec("grpclib") is not None,
        purpose="tests of the kubelet's podresources service",
        remedy="install Go 1.26, which builds it once, and relume[agent]",
    ),
    "nvml": Need(
        there=lambda: nvml.there() and importlib.util.find_spec("pynvml") is not None,
        purpose="tests of the driver's library of GPUs",
        remedy="install a C compiler (cc), and relume[agent]",
    ),
    "helm": Need(
        there=helm.there,
        purpose="tests of the chart with real Helm and kustomize",
        remedy="install Go 1.26, which builds them once",
    ),
    "go": Need(
        there=lambda: shutil.which("go") is not None,
        purpose="tests of the producer in Go",
        remedy="install Go 1.24 or newer",
    ),
    "versitygw": Need(
        there=lambda: s3_store.there() and importlib.util.find_spec("obstore") is not None,
        purpose="tests of weights from a real S3-compatible store",
        remedy="install Go 1.24 or newer, which builds versitygw once, and relume[stores]",
    ),
    "registry": Need(
        there=oci_registry.there,
        purpose="tests of weights from a real OCI registry",
        remedy="install Go 1.24 or newer, which builds it once",
    ),
    "hf": Need(
        there=lambda: importlib.util.find_spec("huggingface_hub") is not None,
        purpose="tests of weights from a hub",
        remedy="install relume[hf]",
    ),
    "prometheus": Need(
        there=lambda: prometheus.there() and importlib.util.find_spec("prometheus_api_client") is not None,
        purpose="tests on a real Prometheus",
        remedy="install prometheus (apt install prometheus) and relume[prometheus]",
    ),
    "nginx": Need(
        there=lambda: shutil.which("nginx") is not None,
        purpose="tests of weights from a real HTTP server",
        remedy="install nginx (apt install nginx-light)",
    ),
    "linux": Need(
        there=lambda: Path("/proc/self/status").exists(),
        purpose="tests that read /proc",
        remedy="run on Linux",
    ),
}


def required() -> bool:
    """Whether what is missing fails the run instead of being left out."""
    return os.environ.get("RELUME_REQUIRE") == "all"
