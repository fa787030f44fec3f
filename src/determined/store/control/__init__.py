"""What experiments that a controller drives need: pending events, its lease, code snapshots, matched log policies."""
