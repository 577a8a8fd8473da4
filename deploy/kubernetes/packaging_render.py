"""The plain manifests, rendered of the Helm chart, and the chart's copies of the definitions: one source for all.

``python -m deploy.kubernetes.packaging_render --write`` writes `manifests/`, `crds/Kustomization` and the chart's
`files/crds/`; it needs Helm (the environment variable HELM, or a ``helm`` on the PATH) when the chart has changed.
``--check`` needs none: each file says which chart it was rendered of, and what was rendered.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from deploy.kubernetes import crd
from deploy.kubernetes.packaging import FOLDER, KINDS, NAME, PARTS, RENDERED_FOR

CHART: Final = Path(__file__).parents[1] / "charts" / "relume"
_COPIES: Final = CHART / "files" / "crds"
_COMMON: Final = ("admin.tokenSecret.name=relume-admin", "peers.secret.name=relume-peers", "crds.install=false")
_BROKERS: Final = "kafka.servers={kafka:9092}"
VARIANTS: Final[Mapping[Path, Sequence[str]]] = {FOLDER: _COMMON, PARTS: (*_COMMON, _BROKERS)}
"""Each folder of manifests, and the values that it is rendered with."""
ADDED: Final[Mapping[str, str]] = {"agent.yaml": "agent.enabled=true", "monitor.yaml": "serviceMonitor.enabled=true"}
"""Files that are installed when they are asked for, or where the cluster knows their kind: what one more value adds."""
_RIGHTS: Final = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_HELMS_OWN: Final = ("helm.sh/chart", "helm.sh/resource-policy", "app.kubernetes.io/managed-by")
_MADE: Final = "# Made by `python -m deploy.kubernetes.packaging_render --write`; do not edit.\n"
OLDEST: Final = "1.30.0"
"""The Kubernetes that manifests are rendered for: the chart demands it or a newer one."""
RENDERED_WITHIN: Final = 60.0
"""Seconds; Helm takes half of one."""


class HelmMissing(Exception):
    """The manifests must be rendered anew, and there is no Helm."""


def copies() -> Mapping[Path, str]:
    """The files that need no Helm, and what should stand in them."""
    made = {_COPIES / name: text for name, text in crd.rendered().items()}
    # without an ending, so that `kubectl apply -f crds/` takes the definitions alone
    made[crd.FOLDER / "Kustomization"] = _kustomization("resources:", *(f"  - {name}" for name in crd.rendered()))
    head = (
        "# The namespace must exist, with the Secret that holds the admin port's token; set both, and the image, here:",
        f"# kubectl create namespace {RENDERED_FOR}",
        f"# kubectl -n {RENDERED_FOR} create secret generic relume-admin --from-literal=token=$(openssl rand -hex 32)",
    )
    agents = (
        "# Agents, for remote weights: add agent.yaml to the resources, and to the environment of who has",
        "# RELUME_CLUSTER: RELUME_KUBE_WEIGHTS_CLAIM=relume-weights. (relume install --agent does both.)",
    )
    for folder in VARIANTS:
        up = "../" * (len(folder.relative_to(FOLDER).parts) + 1)
        more: tuple[str, ...] = ()
        if folder == PARTS:
            more = (
                f"# kubectl -n {RENDERED_FOR} create secret generic relume-peers --from-literal=secret=$(uuidgen)",
                "# The brokers stand in RELUME_EVENTS of each Deployment.",
            )
        made[folder / "kustomization.yaml"] = _kustomization(
            *head, *more, *agents, f"namespace: {RENDERED_FOR}", "resources:", f"  - {up}crds", "  - rbac.yaml",
            "  - relume.yaml", "images:", "  - {name: relume, newName: relume, newTag: 0.1.0}",
        )  # fmt: skip
    return made


def _kustomization(*lines: str) -> str:
    comments = [line for line in lines if line.startswith("#")]
    rest = [line for line in lines if not line.startswith("#")]
    kind = ("apiVersion: kustomize.config.k8s.io/v1beta1", "kind: Kustomization")
    return _MADE + "\n".join([*comments, *kind, *rest]) + "\n"


def chart_digest() -> str:
    """Of the values, and of all files of the chart but the definitions, which no manifest holds."""
    made = hashlib.sha256(repr((_COMMON, _BROKERS, OLDEST)).encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file() and path.parent != _COPIES):
        made.update(f"{path.relative_to(CHART)}\0".encode() + path.read_bytes() + b"\0")
    return made.hexdigest()[:16]


def render(helm: str) -> Mapping[Path, str]:
    """The manifests, by real Helm. Raises HelmMissing when it fails."""
    made: dict[Path, str] = {}
    for folder, values in VARIANTS.items():
        found = rendered(helm, values)
        for name, kinds in (("rbac.yaml", _RIGHTS), ("relume.yaml", tuple(set(KINDS) - set(_RIGHTS)))):
            text = _yaml([_plain(one) for one in found if one["kind"] in kinds])
            made[folder / name] = f"{_MADE}{_mark(text)}{text}"
        known = {(one["kind"], one["metadata"]["name"]) for one in found}
        for name, value in ADDED.items():
            more = rendered(helm, (*values, value))
            text = _yaml([_plain(one) for one in more if (one["kind"], one["metadata"]["name"]) not in known])
            made[folder / name] = f"{_MADE}{_mark(text)}{text}"
    return made


def rendered(helm: str, values: Sequence[str]) -> list[dict[str, Any]]:
    """What Helm makes of the chart with these values."""
    command = [helm, "template", NAME, str(CHART), "--namespace", RENDERED_FOR, "--kube-version", OLDEST]
    command += [word for value in values for word in ("--set", value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RENDERED_WITHIN, check=False)
    if done.returncode:
        raise HelmMissing(f"helm template failed: {done.stderr.strip()}")
    return [one for one in YAML(typ="safe", pure=True).load_all(done.stdout) if one]


def _mark(text: str) -> str:
    return f"# chart {chart_digest()}, rendered {hashlib.sha256(text.encode()).hexdigest()[:16]}\n"


def stale() -> list[Path]:
    """The manifests that are not of this chart, or were edited."""
    names = ("rbac.yaml", "relume.yaml", *ADDED)
    return [folder / name for folder in VARIANTS for name in names if _stale(folder / name)]


def _stale(path: Path) -> bool:
    if not path.exists():
        return True
    head, rest = path.read_text(encoding="utf-8")[: len(_MADE)], path.read_text(encoding="utf-8")[len(_MADE) :]
    mark, _, text = rest.partition("\n")
    return head != _MADE or f"{mark}\n" != _mark(text)


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    """Without what is Helm's, and without the namespace, which kubectl and kustomize give."""
    metadata = body["metadata"]
    metadata.pop("namespace", None)
    for field in ("labels", "annotations"):
        kept = {key: value for key, value in metadata.get(field, {}).items() if key not in _HELMS_OWN}
        metadata.pop(field, None)
        if kept:
            metadata[field] = kept
    return body


def _yaml(values: Sequence[object]) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # it is said to be None, and is a flag
    yaml.width = 120
    yaml.representer.ignore_aliases = lambda _: True
    texts = []
    for value in values:
        stream = io.StringIO()
        yaml.dump(value, stream)
        texts.append(stream.getvalue())
    return "---\n".join(texts)


def _helm() -> str:
    found = os.environ.get("HELM") or shutil.which("helm")
    if not found:
        raise HelmMissing("the chart has changed, and there is no Helm to render it with; install it, or set HELM")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """``--write`` or ``--check``; exit status 1 when a file is stale, or there is no Helm to write it anew."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kubernetes.packaging_render", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true", help="write the files that are out of date")
    choice.add_argument("--check", action="store_true", help="fail when a file is out of date")
    late = [path for path, text in copies().items() if _read(path) != text]
    if parser.parse_args(arguments).write:
        for path in late:
            _write(path, copies()[path])
        try:
            made = render(_helm()) if stale() else {}
        except HelmMissing as error:
            sys.stderr.write(f"{error}\n")
            return 1
        for path, text in made.items():
            _write(path, text)
        return 0
    for path in (*late, *stale()):
        name = path.relative_to(CHART.parents[2])
        sys.stderr.write(f"{name} is out of date; run python -m deploy.kubernetes.packaging_render --write\n")
    return 1 if late or stale() else 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
