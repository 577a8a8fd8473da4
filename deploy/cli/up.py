"""`relume up`: one option for each setting of the process, made of the settings themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from deploy.cli.commands import command, importing
from deploy.cli.failing import Refused
from deploy.cli.setting_options import setting_options, settings_given
from deploy.settings.settings import Settings, SettingsRefused

FIRST: Final = ("data_dir", "gateway_port", "admin_port", "gpus", "events")
"""What is set most often stands first in the help."""


_OTHERS: Final = sorted(
    (name for name in Settings.model_fields if name not in FIRST), key=lambda name: name.startswith("kafka_")
)
"""What few need stands last."""


@command("up", (
    "relume up -f model.yaml",
    "relume up --data-dir ./data --gateway-port 9000 --admin-port 9001 --gpus 2",
    "relume up --events memory:             # keeps nothing; for trying things out",
    "relume up --events kafka://localhost:9092",
    "relume up --cluster kubernetes --kubeconfig ~/.kube/config --kube-namespace models",
))  # fmt: skip
@click.option(
    "-f", "--file", "files", multiple=True, metavar="FILE", help="Declare these models first; file or folder."
)
@setting_options((*FIRST, *_OTHERS))
def up(files: Sequence[str], **given: str | None) -> int:
    """Run relume in the foreground: gateway, autoscaler, allocator, local cluster and admin port in one process.

    Every option is also an environment variable; the command line stands before it. SIGTERM and Ctrl-C drain: held
    requests get 503, running streams finish within --drain-bound, then it ends with exit code 0.
    """
    settings = settings_given(given)
    with importing():
        from deploy.compose.up import run  # noqa: PLC0415 - everything that runs; not for --help

    try:
        return run(settings, tuple(files))
    except SettingsRefused as refused:
        raise Refused("relume cannot start with these settings", why=str(refused)) from refused
