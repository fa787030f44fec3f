"""Try a search without training: the real engine on synthetic learning curves."""
