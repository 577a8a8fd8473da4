"""Settings of the node's weight cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from events.spec import Quantity


class WeightFields(BaseSettings):
    """Fields of the settings that are about weights on this node."""

    model_config = SettingsConfigDict(use_attribute_docstrings=True)

    cache_capacity: Annotated[Quantity, Field(gt=0)] | None = None
    """Most bytes of weights that this node keeps. Default: the disk, less 5 %."""
    cache_quotas: Path | None = None
    """A YAML file of quotas by name: match (a pattern of addresses), bytes, files. Default: none."""
    cache_prewarm_rate: Annotated[Quantity, Field(gt=0)] | None = None
    """Bytes a second that weights take which nobody waits for yet. Default: half of what the network gives."""
    sleep_memory: Quantity = 0
    """Bytes of the memory that are kept for replicas that sleep (coldStart.sleep). 0: none sleeps."""
    cache_scrub_rate: Quantity = 20 << 20
    """Bytes a second of cached weights that are read anew in the background, against rot. 0: none."""

    @field_validator("cache_quotas")
    @classmethod
    def _quotas_file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.expanduser().is_file():
            raise ValueError(f"there is no file {path}; name one that exists")
        return None if path is None else path.expanduser()
