"""Who yields when GPUs run short: prices, victims, claims, and moves against fragmentation. Pure."""
