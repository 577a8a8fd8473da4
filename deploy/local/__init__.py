"""The local cluster: replicas are child processes.

Grants in, processes out, states back. Read in this order: `plan` (what to do, pure), `reconciler` (does it), `replica`
(one life), `starting` (one start), `process` and `shim` (no orphan ever), `cluster` (wires and follows the log). Beside
them: `backoff` and `progress` (pure), `care` (memory, metrics, suspects), `folder`, `inventory`, `logs`, `stale`.

What is enforced of a replica's resources: cores by affinity, whole ones (Linux); memory by looking each second at what
the kernel cannot take back; cards by what CUDA is shown. What is not: a fraction of a core, memory between two looks,
and cards against a process that changes its own environment.
"""
