"""Policies over grains of time: from what was most needed in each past grain, what to hold in the next. Pure."""
