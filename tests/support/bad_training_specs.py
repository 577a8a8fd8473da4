"""Bad values in the full document of a training job: (path, value, where it is told, rule, remedy), by name.

A rule or remedy of None is not compared. `BEYOND_TRAINING_SCHEMA` are those that only the program sees.
"""

from __future__ import annotations

import pytest

from tests.support.bad_specs import FORM, NAME, Row

TRAINING_ROWS: dict[str, Row] = {
    "near-kind": ("kind", "TrainJob", "kind", "there is no kind 'TrainJob'", "write kind: TrainingJob"),
    "name": ("metadata.name", "Tune", "metadata.name", FORM, NAME),
    "near": ("spec.checkpoint.ackTimout", "3s", "spec.checkpoint.ackTimout", "there is no field ackTimout here",
             "did you mean ackTimeout?"),
    "near-top": ("spec.priorty", 3, "spec.priorty", "there is no field priorty here", "did you mean priority?"),
    "command-text": ("spec.command", "python train.py", "spec.command", "must be a list",
                     "write [a, b] or one `- item` a line"),
    "command-empty": ("spec.command", [], "spec.command", "must have at least 1 entries", "add to it"),
    "program-empty": ("spec.command", [" ", "x"], "spec.command", "the program's name is empty",
                      "write the program first, then its arguments"),
    "nul": ("spec.command", ["a\0b"], "spec.command", "a word holds the character NUL, which no program can be given",
            "remove it"),
    "variable": ("spec.environment", {"1A": "x"}, "spec.environment.1A", FORM,
                 "use letters, digits and _, and no digit first"),
    "variable-ours": ("spec.environment", {"RELUME_REPORT_FILE": "x"}, "spec.environment",
                      "RELUME_REPORT_FILE is a name that relume sets by itself",
                      "choose one that does not begin with RELUME_"),
    "variable-number": ("spec.environment", {"EPOCHS": 3}, "spec.environment.EPOCHS", "must be text",
                        "put it in quotes"),
    "folder": ("spec.folder", "runs/1", "spec.folder",
               "the folder is not absolute, and nothing says what it is relative to", "begin it with /"),
    "mount-of-nothing": ("spec.pod", {"image": "a", "mounts": [{"path": "/a"}]}, "spec.pod.mounts[0]",
                         "a mount has one source", "write one of claim, hostPath and memory"),
    "pod-without-image": ("spec.pod", {"port": 80}, "spec.pod.image", None, None),
    "no-members": ("spec.members", 0, "spec.members", "must be at least 1", "write 1 or more"),
    "min-members": ("spec.elasticity.minMembers", 9, "spec.elasticity.minMembers",
                    "minMembers is above members (8), so the job could never run",
                    "write 8 or less, or raise spec.members"),
    "fraction-and-whole": ("spec.resources.gpuFraction", 0.5, "spec.resources",
                           "gpus and gpuFraction are given together", "keep one"),
    "mig-profile": ("spec.resources", {"migProfile": "9g.80gb"}, "spec.resources.migProfile",
                    "no known card has such a MIG profile", None),
    "priority": ("spec.priority", 2_000_000, "spec.priority", "must be at most 1000000", "write 1000000 or less"),
    "budget": ("spec.preemption.budgetPerHour", 0, "spec.preemption.budgetPerHour", "must be at least 1",
               "write 1 or more"),
    "unit": ("spec.preemption.minRuntime", 90, "spec.preemption.minRuntime", "90 has no unit",
             "write 90s for seconds"),
    "protected": ("spec.preemption.protected", "yes", "spec.preemption.protected", "must be true or false",
                  "write true or false"),
    "channel": ("spec.checkpoint.channels", ["files"], "spec.checkpoint.channels[0]",
                "must be 'file', 'http' or 'signal'", "did you mean file?"),
    "channel-twice": ("spec.checkpoint.channels", ["file", "signal", "file"], "spec.checkpoint.channels",
                      "a channel is named twice", "keep one"),
    "kill": ("spec.checkpoint.signal", "SIGKILL", "spec.checkpoint.signal",
             "no program can catch SIGKILL, so it would tell nothing", "write SIGUSR1 or SIGUSR2"),
    "signal": ("spec.checkpoint.signal", "USR1", "spec.checkpoint.signal",
               "'USR1' is no signal to tell a trainer with", None),
    "ack": ("spec.checkpoint.ackTimeout", "10m", "spec.checkpoint.ackTimeout",
            "ackTimeout is longer than checkpoint.saveTimeout: a trainer that says nothing would have more time",
            "make it shorter, or checkpoint.saveTimeout longer"),
    "no-ack": ("spec.checkpoint.ackTimeout", "0s", "spec.checkpoint.ackTimeout", "must be more than 0", "write more"),
    "unsent-signal": ("spec.checkpoint.channels", ["file"], "spec.checkpoint.signal",
                      "a signal is named, and no channel sends it",
                      "add signal to checkpoint.channels, or leave signal out"),
}  # fmt: skip
BEYOND_TRAINING_SCHEMA = frozenset({
    "program-empty", "nul", "variable-ours", "folder", "min-members", "fraction-and-whole", "channel-twice", "ack",
    "no-ack", "mig-profile", "unsent-signal", "mount-of-nothing",
})  # fmt: skip

BAD_TRAINING = [pytest.param(*row, id=name) for name, row in TRAINING_ROWS.items()]
