"""`relume` with a wall clock that is set: ``python stepped_clock.py SECONDS FILE up …``.

`time.time` is off by SECONDS once FILE exists (with an empty name: from the beginning). Nothing else is changed: the
monotonic clock goes on as ever, as when an operator or NTP sets the clock of a machine.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parents[2]))

_real = time.time  # noqa: TID251 - it is what this program sets


def main() -> NoReturn:
    """Run relume's command line by that clock."""
    step, file = float(sys.argv[1]), sys.argv[2]

    def stepped() -> float:
        return _real() + (step if not file or Path(file).exists() else 0.0)

    time.time = stepped  # noqa: TID251 - as above
    from deploy.cli.main import run  # noqa: PLC0415 - everything must see the clock as it is set here

    sys.exit(run(sys.argv[3:]))


if __name__ == "__main__":
    main()
