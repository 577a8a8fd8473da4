"""What the process says about itself, on standard error: lines for people, or JSON for machines."""

from __future__ import annotations

import json
import logging
import sys

from deploy.settings.settings import LogFormat, Settings
from events.units import format_instant


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the error where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line = {
            "time": format_instant(record.created), "level": record.levelname.lower(), "logger": record.name,
            "message": record.getMessage(),
        }  # fmt: skip
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(settings: Settings) -> None:
    """Send all loggers to standard error in the wanted form."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format is LogFormat.JSON:
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
